// Command table writes the conformance document from the reports in a directory
// (see verbstest.OutEnv) to its output:
//
//	table DIR > docs/conformance.md
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: table DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no reports in %s", dir)
	}
	var reports []*verbstest.Report
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		r := &verbstest.Report{}
		if err := json.Unmarshal(b, r); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		reports = append(reports, r)
	}
	_, err = fmt.Print(verbstest.Document(reports))
	return err
}
