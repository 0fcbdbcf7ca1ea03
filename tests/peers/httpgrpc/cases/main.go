// Package cases holds what the peers of httpgrpc have in common: the site that their servers serve, and the calls that their
// clients make. It knows no gRPC, so that each peer brings its own version.
package cases

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
)

const usage = `usage: PEER serve [-listen ADDRESS] [-limit OCTETS] [-errors-4xx]   serves the site over httpgrpc
       PEER front [-listen ADDRESS] [-limit OCTETS] ADDRESS            serves by HTTP what it fetches there over httpgrpc
       PEER call [-limit OCTETS] ADDRESS                               makes the calls on standard input, a line of JSON for each
A server says on standard output where it listens.`

// Peer is one library in one version.
type Peer struct {
	// Serve serves `site` until the process ends.
	Serve func(listener net.Listener, site http.Handler, options Options) error
	// Dial makes a client.
	Dial func(address string, options Options) (Caller, error)
	// Front makes a handler that asks there.
	Front func(address string, options Options) (http.Handler, error)
}

// Options are what a library can be told.
type Options struct {
	// Bytes of a message, both ways; 0: what the library has without being told.
	Limit int
	// Whether 4xx go as errors too.
	Errors4xx bool
}

// Main is the whole program of a peer.
func Main(peer Peer) {
	if err := command(peer, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(peer Peer, words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("%s", usage)
	}
	var options Options
	flags := flag.NewFlagSet(words[0], flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	flags.IntVar(&options.Limit, "limit", 0, "bytes of a message, both ways; 0 is the library's own limit")
	flags.BoolVar(&options.Errors4xx, "errors-4xx", false, "4xx go as errors too")
	if err := flags.Parse(words[1:]); err != nil {
		return err
	}
	if words[0] == "serve" {
		listener, err := open(*listen)
		if err != nil {
			return err
		}
		return peer.Serve(listener, Site(), options)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%s", usage)
	}
	switch words[0] {
	case "front":
		handler, err := peer.Front(flags.Arg(0), options)
		if err != nil {
			return err
		}
		listener, err := open(*listen)
		if err != nil {
			return err
		}
		return http.Serve(listener, handler)
	case "call":
		caller, err := peer.Dial(flags.Arg(0), options)
		if err != nil {
			return err
		}
		return run(os.Stdin, os.Stdout, caller)
	}
	return fmt.Errorf("%s", usage)
}

// open listens, and says where: whoever started this reads the line.
func open(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		fmt.Println("listening on", listener.Addr())
	}
	return listener, err
}
