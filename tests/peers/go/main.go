// Go's own HTTP/2 client against a server that answers as crates/causeway/tests/command_line/http2.rs says:
// GET / "hello", POST /echo the request's body, GET /large a file of 4 MiB, POST /early without reading.
//
// Prints a line for each case and ends with status 1 at the first that fails. Nothing but the standard library, so that it is built
// without a network.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"time"
)

const largeBytes = 4 << 20

func main() {
	base := os.Args[1]
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols,
		// The certificate is the server's own; what is tested is what goes through.
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
		ExpectContinueTimeout: 20 * time.Second,
		MaxConnsPerHost:       1,
	}
	client := peer{base: base, client: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	cases := []struct {
		name string
		run  func(peer) error
	}{
		{"get", get},
		{"head", head},
		{"many at once", many},
		{"upload of unknown length", upload},
		{"upload that the server does not read", early},
		{"download", download},
		{"trailers", trailers},
		{"100-continue", expect},
		{"cancelled", cancelled},
		{"a large field", field},
	}
	for _, c := range cases {
		if err := c.run(client); err != nil {
			fmt.Printf("FAILED %s: %v\n", c.name, err)
			os.Exit(1)
		}
		fmt.Printf("ok %s\n", c.name)
	}
}

type peer struct {
	base   string
	client *http.Client
}

func get(p peer) error { return p.wants("GET", "/", nil, "hello") }
func head(p peer) error {
	answer, err := p.client.Head(p.base + "/large")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.ContentLength != largeBytes {
		return fmt.Errorf("Content-Length %d", answer.ContentLength)
	}
	return nil
}

// More than a connection may have open at once.
func many(p peer) error {
	var wait sync.WaitGroup
	failed := make(chan error, 500)
	for range 500 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := p.wants("GET", "/", nil, "hello"); err != nil {
				failed <- err
			}
		}()
	}
	wait.Wait()
	close(failed)
	return <-failed
}

func upload(p peer) error {
	text := strings.Repeat("0123456789abcdef", 64<<10)
	reader, writer := io.Pipe()
	go func() {
		for from := 0; from < len(text); from += 10_000 {
			io.WriteString(writer, text[from:min(from+10_000, len(text))])
		}
		writer.Close()
	}()
	return p.wants("POST", "/echo", reader, text)
}

func early(p peer) error {
	return p.wants("POST", "/early", bytes.NewReader(make([]byte, 3<<20)), "early")
}

func download(p peer) error {
	answer, err := p.client.Get(p.base + "/large")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	hash := sha256.New()
	if count, err := io.Copy(hash, answer.Body); err != nil || count != largeBytes {
		return fmt.Errorf("%d bytes: %v", count, err)
	}
	if want := sha256.Sum256(bytes.Repeat([]byte{'x'}, largeBytes)); !bytes.Equal(hash.Sum(nil), want[:]) {
		return fmt.Errorf("other bytes")
	}
	return nil
}

func trailers(p peer) error {
	request, _ := http.NewRequest("POST", p.base+"/echo", io.NopCloser(strings.NewReader("with trailers")))
	request.Trailer = http.Header{"X-Sum": nil}
	request.Trailer.Set("X-Sum", "1")
	return p.sends(request, "with trailers")
}

func expect(p peer) error {
	told := false
	trace := &httptrace.ClientTrace{Got100Continue: func() { told = true }}
	context := httptrace.WithClientTrace(context.Background(), trace)
	request, _ := http.NewRequestWithContext(context, "POST", p.base+"/echo", strings.NewReader("expected"))
	request.Header.Set("Expect", "100-continue")
	if err := p.sends(request, "expected"); err != nil {
		return err
	}
	if !told {
		return fmt.Errorf("no 100 came")
	}
	return nil
}

// A stream that is reset in the middle of its answer takes nothing from the others.
func cancelled(p peer) error {
	for range 20 {
		context, cancel := context.WithCancel(context.Background())
		request, _ := http.NewRequestWithContext(context, "GET", p.base+"/large", nil)
		answer, err := p.client.Do(request)
		if err != nil {
			cancel()
			return err
		}
		io.ReadFull(answer.Body, make([]byte, 1000))
		cancel()
		answer.Body.Close()
		if err := p.wants("GET", "/", nil, "hello"); err != nil {
			return err
		}
	}
	return download(p)
}

func field(p peer) error {
	request, _ := http.NewRequest("GET", p.base+"/field", nil)
	value := strings.Repeat("v", 12_000)
	request.Header.Set("X-Large", value)
	return p.sends(request, value)
}

func (p peer) wants(method, path string, body io.Reader, want string) error {
	request, err := http.NewRequest(method, p.base+path, body)
	if err != nil {
		return err
	}
	return p.sends(request, want)
}

func (p peer) sends(request *http.Request, want string) error {
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != 200 || answer.ProtoMajor != 2 || string(text) != want {
		return fmt.Errorf("%s %d with %d bytes, wanted %d", answer.Proto, answer.StatusCode, len(text), len(want))
	}
	return nil
}
