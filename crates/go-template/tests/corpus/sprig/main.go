// Reads templates, one quoted Go string a line, and writes what Go makes of each with Sprig's functions, quoted: the
// output, or that it fails. With the argument `names` it writes the names of Sprig's functions.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

func main() {
	if len(os.Args) > 1 {
		names := slices.Sorted(maps.Keys(sprig.TxtFuncMap()))
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text, err := strconv.Unquote(lines.Text())
		if err != nil {
			panic(lines.Text())
		}
		var output bytes.Buffer
		set, err := template.New("t").Option("missingkey=zero").Funcs(sprig.TxtFuncMap()).Parse(text)
		if err == nil {
			err = set.Execute(&output, nil)
		}
		if err != nil {
			fmt.Println("error")
			continue
		}
		fmt.Println("output", strconv.Quote(output.String()))
	}
}
