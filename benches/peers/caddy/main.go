// What Caddy does for a request before and while its handlers run: preparing it (the replacer, the context's values, the
// copy of the request) and evaluating placeholders. Prints one JSON object a line: name, ns, bytes, allocations.
//
// Usage: caddy-pieces prepare|placeholders FILE, the file holding the request's bytes.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// As Caddy's pull request 4649 had it: so many workers, so many requests prepared by each.
const (
	workers = 20
	each    = 5
)

var (
	server = new(caddyhttp.Server)
	writer = httptest.NewRecorder()
)

func main() {
	testing.Init()
	// Rounds are many and short: the runner takes turns between the programs that it compares.
	if err := flag.Set("test.benchtime", "0.2s"); err != nil {
		log.Fatal(err)
	}
	if len(os.Args) != 3 {
		log.Fatal("usage: caddy-pieces prepare|placeholders FILE")
	}
	request := read(os.Args[2])
	switch os.Args[1] {
	case "prepare":
		prepare(request)
	case "placeholders":
		placeholders(request)
	default:
		log.Fatalf("no piece is called %q", os.Args[1])
	}
}

func read(file string) *http.Request {
	content, err := os.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	request, err := http.ReadRequest(bufio.NewReader(content))
	if err != nil {
		log.Fatal(err)
	}
	request.RemoteAddr = "192.0.2.1:4711"
	return request
}

func prepare(request *http.Request) {
	measure("one", func(b *testing.B) {
		var prepared *http.Request
		for b.Loop() {
			prepared = prepareOne(request)
		}
		_ = prepared
	})
	measure("20 started, 5 each", func(b *testing.B) {
		for b.Loop() {
			var all sync.WaitGroup
			all.Add(workers)
			for range workers {
				go func() {
					defer all.Done()
					for range each {
						prepareOne(request)
					}
				}()
			}
			all.Wait()
		}
	})
	// Workers that are there already and wait, as connections that are open do.
	asked, done := make(chan struct{}), make(chan struct{}, workers)
	for range workers {
		go func() {
			for range asked {
				for range each {
					prepareOne(request)
				}
				done <- struct{}{}
			}
		}()
	}
	measure("20 woken, 5 each", func(b *testing.B) {
		for b.Loop() {
			for range workers {
				asked <- struct{}{}
			}
			for range workers {
				<-done
			}
		}
	})
}

func prepareOne(request *http.Request) *http.Request {
	return caddyhttp.PrepareRequest(request, caddy.NewReplacer(), writer, server)
}

func placeholders(request *http.Request) {
	var cases struct {
		Variables map[string]string
		Templates []struct{ Name, Source, Text string }
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		log.Fatal(err)
	}
	request = prepareOne(request)
	for name, text := range cases.Variables {
		caddyhttp.SetVar(request.Context(), name, text)
	}
	replacer := request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	for _, each := range cases.Templates {
		if text := replacer.ReplaceAll(each.Source, ""); text != each.Text {
			log.Fatalf("%s: %q became %q, not %q", each.Name, each.Source, text, each.Text)
		}
		measure(each.Name, func(b *testing.B) {
			var text string
			for b.Loop() {
				text = replacer.ReplaceAll(each.Source, "")
			}
			_ = text
		})
	}
}

func measure(name string, work func(*testing.B)) {
	result := testing.Benchmark(work)
	err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"name":        name,
		"ns":          float64(result.T.Nanoseconds()) / float64(result.N),
		"bytes":       float64(result.MemBytes) / float64(result.N),
		"allocations": float64(result.MemAllocs) / float64(result.N),
	})
	if err != nil {
		log.Fatal(err)
	}
}
