package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// exampleName matches the name of a numbered example, such as 01-connect-and-echo. Other folders in
// examples, such as the demo, do not match.
var exampleName = regexp.MustCompile(`^\d\d-`)

// maxExampleLines is the limit for the code of an example, which is read in one go.
const maxExampleLines = 170

// checkExamples checks that each numbered example has a README.md, a test, and less than maxExampleLines of
// code, the sum of its files without tests. The error is for files that cannot be read.
func checkExamples(root fs.FS, sources []*source) (found []string, err error) {
	dirs, err := fs.ReadDir(root, "examples")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		if !d.IsDir() || !exampleName.MatchString(d.Name()) {
			continue
		}
		dir := path.Join("examples", d.Name())
		code, tests := 0, 0
		for _, s := range sources {
			switch {
			case !below(s.dir(), dir):
			case s.test():
				tests++
			default:
				code += bytes.Count(s.text, []byte("\n"))
			}
		}
		say := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("%s:1: %s", path.Join(dir, "README.md"), fmt.Sprintf(format, args...)))
		}
		if text, err := fs.ReadFile(root, path.Join(dir, "README.md")); err != nil || strings.TrimSpace(string(text)) == "" {
			say("%s has no README.md that says something", dir)
		}
		if code == 0 || code >= maxExampleLines {
			say("%s has %d lines of code, want some and under %d: one new idea each", dir, code, maxExampleLines)
		}
		if tests == 0 {
			say("%s has no test that runs it", dir)
		}
	}
	return found, nil
}
