"""The comparisons: what plugbay costs beside the floor and beside what a user would pick instead."""
