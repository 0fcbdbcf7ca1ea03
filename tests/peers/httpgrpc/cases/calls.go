package cases

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// Bodies and texts up to so many bytes are shown as they are.
const shownMax = 300

// Call is one line of what a client is told to do.
type Call struct {
	Name   string      `json:"name"`
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Fields [][2]string `json:"fields"`
	// A text, or else so many bytes of Pattern.
	Body  string `json:"body"`
	Bytes int    `json:"bytes"`
	// 0: no deadline.
	TimeoutMs int  `json:"timeout_ms"`
	Gzip      bool `json:"gzip"`
	// How often, and how many of them at a time; one outcome is told, and all have to be alike.
	Times  int `json:"times"`
	AtOnce int `json:"at_once"`
}

// Content is the body that the call carries.
func (c *Call) Content() []byte {
	if c.Body != "" {
		return []byte(c.Body)
	}
	return Pattern(c.Bytes)
}

// Outcome is one line of what a client tells.
type Outcome struct {
	Name string `json:"name"`
	// Of gRPC; 0 is OK.
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details"`
	// Whether it was told by an error that holds an HTTP response.
	InError bool                `json:"in_error"`
	Status  int                 `json:"status"`
	Fields  map[string][]string `json:"fields"`
	Length  int                 `json:"length"`
	// Whether the body is Pattern, and what it is where it is a short text.
	Pattern bool   `json:"pattern"`
	Body    string `json:"body"`
	Sha256  string `json:"sha256"`
	Times   int    `json:"times"`
}

// SetBody tells of a body.
func (o *Outcome) SetBody(body []byte) {
	sum := sha256.Sum256(body)
	o.Length, o.Sha256 = len(body), hex.EncodeToString(sum[:])
	o.Pattern = bytes.Equal(body, Pattern(len(body)))
	if len(body) <= shownMax && utf8.Valid(body) {
		o.Body = string(body)
	}
}

// Caller makes one call.
type Caller func(ctx context.Context, call *Call) Outcome

// run makes the calls that `input` names, line by line, and writes what each came to.
func run(input io.Reader, output io.Writer, caller Caller) error {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		call := new(Call)
		if err := json.Unmarshal(lines.Bytes(), call); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		told, err := json.Marshal(repeat(call, caller))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(output, "%s\n", told); err != nil {
			return err
		}
	}
	return lines.Err()
}

func repeat(call *Call, caller Caller) Outcome {
	times, atOnce := max(call.Times, 1), max(call.AtOnce, 1)
	outcomes := make([]Outcome, times)
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range times {
		places <- struct{}{}
		group.Go(func() {
			outcomes[i] = once(call, caller)
			<-places
		})
	}
	group.Wait()
	first := outcomes[0]
	for _, other := range outcomes[1:] {
		if other.Code != first.Code || other.Status != first.Status || other.Sha256 != first.Sha256 {
			// Whoever reads this expects something else than the one or the other.
			first.Message = fmt.Sprintf("not all alike: code %d, status %d, %d bytes, but also code %d (%s), status %d, %d bytes",
				first.Code, first.Status, first.Length, other.Code, other.Message, other.Status, other.Length)
			first.Code = -1
			break
		}
	}
	first.Times = times
	return first
}

func once(call *Call, caller Caller) Outcome {
	ctx := context.Background()
	// Without a deadline of its own a call that hangs is ended, so that the test fails.
	timeout := time.Minute
	if call.TimeoutMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(call.TimeoutMs)*time.Millisecond)
		defer cancel()
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(timeout, cancel).Stop()
	}
	outcome := caller(ctx, call)
	outcome.Name = call.Name
	return outcome
}
