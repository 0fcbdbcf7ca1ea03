// Reads templates, one a line, and writes what Go makes of each with Sprig's functions: the output, or that it fails.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

func main() {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	time.Local = zone
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var output bytes.Buffer
		set, err := template.New("t").Funcs(sprig.TxtFuncMap()).Parse(lines.Text())
		if err == nil {
			err = set.Execute(&output, nil)
		}
		if err != nil {
			fmt.Println("error")
			continue
		}
		fmt.Println("output", output.String())
	}
}
