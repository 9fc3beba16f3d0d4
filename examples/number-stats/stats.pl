#!/usr/bin/env perl
# A rune plugin without any SDK, in Perl with the JSON module that comes with it.
use strict;
use warnings;
use JSON::PP;
use List::Util qw(sum min max);

$| = 1;
my $json = JSON::PP->new->utf8->canonical;

sub say_line { print $json->encode($_[0]), "\n" }

defined(my $handshake = <STDIN>) or exit 0;
say_line({
    type     => 'handshake',
    manifest => {
        plugin_id        => 'example.number_stats',
        plugin_version   => '1.0.0',
        protocol_version => 'rterm.plugin.v1',
        exposed_tools    => ['stats'],
        capabilities     => [],
    },
});

defined(my $line = <STDIN>) or exit 0;
my $request  = $json->decode($line);
my %response = (type => 'response', request_id => $request->{request_id});
my $numbers  = ref $request->{input} eq 'HASH' ? $request->{input}{numbers} : undef;

if ($request->{tool_name} ne 'stats') {
    %response = (%response, status => 'error', error => { code => 'not_found', message => 'there is no such tool' });
}
elsif (ref $numbers ne 'ARRAY' || !@$numbers) {
    %response = (%response, status => 'error', error => { code => 'invalid_input', message => 'numbers is required' });
}
else {
    $response{status} = 'ok';
    $response{output} = {
        count => scalar @$numbers,
        mean  => sum(@$numbers) / @$numbers,
        min   => min(@$numbers),
        max   => max(@$numbers),
    };
}
say_line(\%response);

# Leaving before the host has read everything can look like a crash to it.
1 while <STDIN>;
