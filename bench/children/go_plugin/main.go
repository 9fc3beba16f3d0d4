// An echo through HashiCorp's go-plugin with net/rpc: host and plugin in one program.
//
//	main CALLS BURST   measures, and prints one JSON object
//	main               is the plugin that it starts
package main

import (
	"encoding/json"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
)

const inFlight = 64

var payload = strings.Repeat("x", 100)

var handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "BENCH", MagicCookieValue: "echo"}

type Server struct{}

func (Server) Echo(text string, answer *string) error {
	*answer = text
	return nil
}

type Echo struct{}

func (Echo) Server(*plugin.MuxBroker) (interface{}, error) { return Server{}, nil }

func (Echo) Client(_ *plugin.MuxBroker, client *rpc.Client) (interface{}, error) { return client, nil }

var plugins = map[string]plugin.Plugin{"echo": Echo{}}

func main() {
	if len(os.Args) < 3 {
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: handshake, Plugins: plugins})
		return
	}
	calls, burst := number(os.Args[1]), number(os.Args[2])
	host := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: handshake,
		Plugins:         plugins,
		Cmd:             exec.Command(os.Args[0]),
		Logger:          hclog.NewNullLogger(),
	})
	defer host.Kill()
	connection, err := host.Client()
	check(err)
	dispensed, err := connection.Dispense("echo")
	check(err)
	client := dispensed.(*rpc.Client)
	echo := func() {
		var answer string
		check(client.Call("Plugin.Echo", payload, &answer))
		if answer != payload {
			panic("another answer")
		}
	}
	times := measure(echo, calls/10)
	times = measure(echo, calls)
	sort.Float64s(times)
	atOnce(echo, burst/10)
	began := time.Now()
	atOnce(echo, burst)
	rate := float64(burst) / time.Since(began).Seconds()
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"p50_us":      times[len(times)/2],
		"p99_us":      times[len(times)*99/100],
		"calls_per_s": rate,
	}))
}

func measure(echo func(), calls int) []float64 {
	times := make([]float64, calls)
	for at := range times {
		began := time.Now()
		echo()
		times[at] = float64(time.Since(began).Nanoseconds()) / 1e3
	}
	return times
}

func atOnce(echo func(), calls int) {
	var group sync.WaitGroup
	for caller := 0; caller < inFlight; caller++ {
		group.Add(1)
		go func(share int) {
			defer group.Done()
			for ; share > 0; share-- {
				echo()
			}
		}(calls / inFlight)
	}
	group.Wait()
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
