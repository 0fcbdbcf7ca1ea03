// httpgrpc as github.com/grafana/dskit has it, as a server that tells what it allocated and as the client that asks any server.
//
//	httpgrpc serve PORT TOLD [pooled] [exact]
//
// serves bytes on PORT, and what it allocated by HTTP on TOLD. With `pooled` the buffers of answers' bodies are used again, as
// weaveworks/common's pull request 260 had it. With `exact` every allocation is known by who made it, which takes its time.
//
//	httpgrpc ask PORT (answers|requests) BYTES CALLS AT_ONCE
//
// makes calls whose answers or requests carry so many bytes, and tells how long they took as a line of JSON.
package main

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
)

// No message is larger than what is measured here.
const messageBytesMax = 64 << 20

func main() {
	words := os.Args[1:]
	switch {
	case len(words) >= 3 && words[0] == "serve":
		if slices.Contains(words[3:], "exact") {
			runtime.MemProfileRate = 1
		}
		serve(number(words[1]), number(words[2]), slices.Contains(words[3:], "pooled"))
	case len(words) == 6 && words[0] == "ask" && (words[2] == "answers" || words[2] == "requests"):
		ask(number(words[1]), words[2], number(words[3]), number(words[4]), number(words[5]))
	default:
		fmt.Fprintln(os.Stderr, "usage: httpgrpc serve PORT TOLD [pooled] [exact]\n       httpgrpc ask PORT (answers|requests) BYTES CALLS AT_ONCE")
		os.Exit(2)
	}
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
