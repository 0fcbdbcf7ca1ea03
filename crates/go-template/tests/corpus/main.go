// Reads templates, one quoted Go string a line, and writes the result of Go's parser for each, quoted: the source of
// its templates in normal form in the order of their names, or the message of its error.
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"text/template/parse"
)

// The test compares messages without their place: Go's has no column.
var place = regexp.MustCompile(`^template: t:\d+: `)

func main() {
	functions := map[string]any{}
	for _, name := range []string{"f", "g", "len", "index", "print", "printf", "and", "or", "eq", "not"} {
		functions[name] = true
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text, err := strconv.Unquote(lines.Text())
		if err != nil {
			panic(lines.Text())
		}
		trees, err := parse.Parse("t", text, "", "", functions)
		if err != nil {
			fmt.Println("error", strconv.Quote(place.ReplaceAllString(err.Error(), "")))
			continue
		}
		names := []string{}
		for name := range trees {
			names = append(names, name)
		}
		sort.Strings(names)
		result := ""
		for _, name := range names {
			result += name + "=" + trees[name].Root.String() + ";"
		}
		fmt.Println("tree", strconv.Quote(result))
	}
}
