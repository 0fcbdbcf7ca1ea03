package cases

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Pattern makes n bytes that are not all alike, so that a part that is lost or doubled shows.
func Pattern(n int) []byte {
	content := make([]byte, n)
	for i := range content {
		content[i] = byte(uint32(i) * 2654435761 >> 24)
	}
	return content
}

// Site is what the peers' servers serve.
//
//	/bytes/N         N bytes of Pattern
//	/echo             the request's body; each field as Echo-NAME, and what is known of the request as X-Request-…
//	/status/N         that status; ?empty, ?binary say what body, ?quiet and ?message=… set the control fields of dskit
//	/fields/N         N fields X-Field-I
//	/cookies          a field with two values, and one whose name is not spelt as Go spells it
//	/deadline         whether the call has a deadline, and how many milliseconds are left
//	/slow/N           after N milliseconds, or when the call is given up
//	/given-up         how many calls of /slow were given up
func Site() http.Handler {
	var givenUp atomic.Int64
	made := content{}
	mux := http.NewServeMux()
	mux.HandleFunc("/bytes/{count}", func(w http.ResponseWriter, r *http.Request) {
		count, ok := number(w, r, "count")
		if !ok {
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(made.of(count))
	})
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/status/{count}", status)
	mux.HandleFunc("/fields/{count}", func(w http.ResponseWriter, r *http.Request) {
		count, _ := number(w, r, "count")
		for i := range count {
			w.Header().Set(fmt.Sprintf("X-Field-%d", i), fmt.Sprintf("value of field %d", i))
		}
		io.WriteString(w, "many fields\n")
	})
	mux.HandleFunc("/cookies", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Set-Cookie"] = []string{"one=1; Path=/", "two=2"}
		w.Header()["x-lower-case"] = []string{"as it was set"}
		io.WriteString(w, "cookies\n")
	})
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, r *http.Request) {
		until, ok := r.Context().Deadline()
		if !ok {
			io.WriteString(w, "none")
			return
		}
		fmt.Fprint(w, time.Until(until).Milliseconds())
	})
	mux.HandleFunc("/slow/{count}", func(w http.ResponseWriter, r *http.Request) {
		count, _ := number(w, r, "count")
		select {
		case <-time.After(time.Duration(count) * time.Millisecond):
			io.WriteString(w, "slept\n")
		case <-r.Context().Done():
			givenUp.Add(1)
			// So that it is the caller's own clock that ends the call, not this answer.
			time.Sleep(500 * time.Millisecond)
			http.Error(w, "given up", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/given-up", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, givenUp.Load())
	})
	return mux
}

func number(w http.ResponseWriter, r *http.Request, name string) (int, bool) {
	count, err := strconv.Atoi(r.PathValue(name))
	if err != nil || count < 0 || count > 1<<30 {
		http.Error(w, "not a count: "+r.PathValue(name), http.StatusBadRequest)
		return 0, false
	}
	return count, true
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for name, values := range r.Header {
		w.Header()["Echo-"+name] = values
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Request-Method", r.Method)
	w.Header().Set("X-Request-Uri", r.RequestURI)
	w.Header().Set("X-Request-Path", r.URL.Path)
	w.Header().Set("X-Request-Query", r.URL.RawQuery)
	w.Header().Set("X-Request-Host", r.Host)
	w.Header().Set("X-Request-Length", strconv.FormatInt(r.ContentLength, 10))
	w.Write(body)
}

func status(w http.ResponseWriter, r *http.Request) {
	code, ok := number(w, r, "count")
	if !ok {
		return
	}
	query := r.URL.Query()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header()["X-Two-Values"] = []string{"one", "two"}
	if query.Has("quiet") {
		w.Header().Set("X-DoNotLogError", "true")
	}
	if query.Has("message") {
		w.Header().Set("X-ErrorMessage", query.Get("message"))
	}
	if code >= 300 && code < 400 && code != http.StatusNotModified {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(code)
	switch {
	case query.Has("empty"):
	case query.Has("binary"):
		w.Write([]byte{0x80, 0xff, 0, '\r', '\n', 0xc3})
	case query.Has("bytes"):
		count, _ := strconv.Atoi(query.Get("bytes"))
		io.WriteString(w, strings.Repeat("x", count))
	default:
		fmt.Fprintf(w, "status %d\n", code)
	}
}

// bytes are made once for each size.
type content struct{ made sync.Map }

func (o *content) of(count int) []byte {
	if made, ok := o.made.Load(count); ok {
		return made.([]byte)
	}
	made := Pattern(count)
	o.made.Store(count, made)
	return made
}
