package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/grafana/dskit/httpgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// times are what `ask` tells.
type times struct {
	Calls  int     `json:"calls"`
	MeanUs float64 `json:"mean_us"`
	P50Us  float64 `json:"p50_us"`
	P99Us  float64 `json:"p99_us"`
	WallUs float64 `json:"wall_us"`
	// What this client allocated for a call.
	Bytes       float64 `json:"bytes"`
	Allocations float64 `json:"allocations"`
}

// ask makes the calls over one connection. A wrong answer ends it: a server that errs is not fast.
func ask(port int, direction string, content, calls, atOnce int) {
	connection, err := grpc.NewClient("passthrough:///127.0.0.1:"+strconv.Itoa(port),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)))
	check(err)
	client := httpgrpc.NewHTTPClient(connection)
	request := httpgrpc.HTTPRequest{
		Method:  "GET",
		Url:     fmt.Sprintf("/bytes/%d", content),
		Headers: []*httpgrpc.Header{{Key: "User-Agent", Values: []string{"bench"}}, {Key: "Accept", Values: []string{"*/*"}}},
	}
	want := pattern(content)
	if direction == "requests" {
		request.Method, request.Url, request.Body = "POST", "/taken", want
		want = []byte("taken")
	}
	once := func() time.Duration {
		begun := time.Now()
		response, err := client.Handle(context.Background(), &request)
		took := time.Since(begun)
		check(err)
		if response.Code != 200 || !bytes.Equal(response.Body, want) {
			log.Fatalf("answered with %d and %d bytes, expected 200 and %d", response.Code, len(response.Body), len(want))
		}
		return took
	}
	once()
	took := make([]time.Duration, calls)
	var group sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	for first := range atOnce {
		group.Go(func() {
			for i := first; i < calls; i += atOnce {
				took[i] = once()
			}
		})
	}
	group.Wait()
	wall := time.Since(begun)
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	var sum time.Duration
	for _, one := range took {
		sum += one
	}
	us := func(duration time.Duration) float64 { return float64(duration.Nanoseconds()) / 1e3 }
	each := func(before, after uint64) float64 { return float64(after-before) / float64(calls) }
	check(json.NewEncoder(os.Stdout).Encode(times{
		Calls: calls, MeanUs: us(sum) / float64(calls), P50Us: us(took[calls/2]), P99Us: us(took[calls*99/100]), WallUs: us(wall),
		Bytes: each(before.TotalAlloc, after.TotalAlloc), Allocations: each(before.Mallocs, after.Mallocs),
	}))
}
