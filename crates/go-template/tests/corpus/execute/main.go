// Reads templates, one quoted Go string a line, and writes what Go makes of each, quoted: the output, or the error. The
// data is that of tests/execution.rs.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"text/template"
)

func main() {
	data := map[string]any{
		"n": 3, "f": 1.5, "s": "text", "h": "<a href='x'>&\"\n", "t": true, "nil": nil,
		"l": []any{1, "two", 3.5, nil}, "e": []any{}, "w": []string{"x", "y", "z"},
		"m": map[string]any{"a": 1, "b": "two", "c": map[string]any{"d": true}}, "long": int64(-7),
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text, err := strconv.Unquote(lines.Text())
		if err != nil {
			panic(lines.Text())
		}
		set, err := template.New("t").Option("missingkey=zero").Parse(text)
		if err != nil {
			fmt.Println("refused")
			continue
		}
		var output bytes.Buffer
		if err := set.Execute(&output, data); err != nil {
			fmt.Println("error", strconv.Quote(err.Error()))
			continue
		}
		fmt.Println("output", strconv.Quote(output.String()))
	}
}
