// A page of 48 KiB by Go's HTTP/2 server, and how long each request took there: from the read that brought the last byte of
// its head to the return of the write that took the last byte of its answer. Connections are wrapped for that, so the server
// itself is left as it is. net/http is the server of the standard library, xnet that of golang.org/x/net/http2.
// Usage: article net/http|xnet PORT PORT_OF_TIMES [CERTIFICATE KEY]
package main

import (
	"crypto/tls"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

var fields = [...][2]string{
	{"Server", "go"},
	{"Content-Type", "text/html; charset=utf-8"},
	{"Cache-Control", "public, max-age=3600"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "strict-origin-when-cross-origin"},
	{"Strict-Transport-Security", "max-age=31536000"},
	{"Vary", "Accept-Encoding"},
	{"Etag", `"6740c2a0-c000"`},
	{"Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT"},
}

func main() {
	arguments := os.Args[1:]
	line := "A page of plain text, as long as a front page is, so that a body does not fit one frame.\n"
	page := []byte(strings.Repeat(line, 48<<10/len(line)+1)[:48<<10])
	length := strconv.Itoa(len(page))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for i := range fields {
			header[fields[i][0]] = []string{fields[i][1]}
		}
		header["Content-Length"] = []string{length}
		w.Write(page)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+arguments[1])
	if err != nil {
		log.Fatal(err)
	}
	told, err := net.Listen("tcp", "127.0.0.1:"+arguments[2])
	if err != nil {
		log.Fatal(err)
	}
	go tell(told)
	if len(arguments) == 5 {
		certificate, err := tls.LoadX509KeyPair(arguments[3], arguments[4])
		if err != nil {
			log.Fatal(err)
		}
		listener = tls.NewListener(listener, &tls.Config{
			Certificates: []tls.Certificate{certificate},
			NextProtos:   []string{"h2"},
		})
	}
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	if arguments[0] == "net/http" {
		log.Fatal(server.Serve(timed{listener}))
	}
	var other http2.Server
	for {
		conn, err := timed{listener}.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go other.ServeConn(conn, &http2.ServeConnOpts{BaseConfig: server})
	}
}

// timed wraps what a listener accepts. To the server a connection looks like one in the clear, over TLS too: the client has
// agreed on h2, and speaks it from its first byte.
type timed struct{ net.Listener }

func (t timed) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &timedConn{Conn: conn, in: frames{skip: len(http2.ClientPreface)}, begun: map[uint32]time.Time{}}, nil
}

type timedConn struct {
	net.Conn
	in, out frames
	mu      sync.Mutex
	begun   map[uint32]time.Time
}

func (c *timedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	now := time.Now()
	c.in.pass(p[:n], func(kind, flags byte, stream uint32) {
		if kind == 1 && flags&4 != 0 { // HEADERS with END_HEADERS
			c.mu.Lock()
			c.begun[stream] = now
			c.mu.Unlock()
		}
	})
	return n, err
}

func (c *timedConn) Write(p []byte) (int, error) {
	var ended [64]uint32
	last := ended[:0]
	c.out.pass(p, func(kind, flags byte, stream uint32) {
		if kind <= 1 && flags&1 != 0 { // DATA or HEADERS with END_STREAM
			last = append(last, stream)
		}
	})
	n, err := c.Conn.Write(p)
	if len(last) > 0 {
		now := time.Now()
		c.mu.Lock()
		for _, stream := range last {
			times.add(now.Sub(c.begun[stream]))
			delete(c.begun, stream)
		}
		c.mu.Unlock()
	}
	return n, err
}

// frames follows frames through pieces of bytes.
type frames struct {
	skip int // bytes until the next frame's head
	head [9]byte
	have int
}

// pass calls ended for each frame whose last byte is in p.
func (f *frames) pass(p []byte, ended func(kind, flags byte, stream uint32)) {
	for len(p) > 0 || (f.have == 9 && f.skip == 0) {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			if f.skip > 0 {
				return
			}
		}
		if f.have == 9 {
			f.have = 0
			stream := uint32(f.head[5]&0x7f)<<24 | uint32(f.head[6])<<16 | uint32(f.head[7])<<8 | uint32(f.head[8])
			ended(f.head[3], f.head[4], stream)
			continue
		}
		n := copy(f.head[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have == 9 {
			f.skip = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		}
	}
}

var times record

type record struct {
	mu   sync.Mutex
	took []time.Duration
}

func (r *record) add(took time.Duration) {
	r.mu.Lock()
	r.took = append(r.took, took)
	r.mu.Unlock()
}

// take says what there is so far, and forgets it.
func (r *record) take() map[string]any {
	r.mu.Lock()
	took := r.took
	r.took = make([]time.Duration, 0, cap(took))
	r.mu.Unlock()
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	said := map[string]any{"count": len(took), "mean_us": 0, "p50_us": 0, "p99_us": 0}
	if len(took) > 0 {
		var sum time.Duration
		for _, one := range took {
			sum += one
		}
		said["mean_us"] = us(sum) / float64(len(took))
		said["p50_us"] = us(took[len(took)/2])
		said["p99_us"] = us(took[len(took)*99/100])
	}
	return said
}

func tell(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		json.NewEncoder(conn).Encode(times.take())
		conn.Close()
	}
}
