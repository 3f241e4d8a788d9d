package lint

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Each numbered example has a README, a test and under 170 lines of code; other folders are not
// checked.
func TestLadder(t *testing.T) {
	const dir = "examples/07-x/"
	code := func(lines int) string {
		return "// Command x does.\npackage main\n" + strings.Repeat("\n", max(0, lines-4)) + "\nvar x int\n"
	}
	for _, c := range []struct {
		name   string
		change map[string]string // to a correct example; "" removes
		want   string            // part of the one finding; empty for none
	}{
		{"as it should be", nil, ""},
		{"no README", map[string]string{dir + "README.md": ""}, "no README.md"},
		{"an empty README", map[string]string{dir + "README.md": " \n"}, "no README.md"},
		{"149 lines", map[string]string{dir + "main.go": code(149)}, ""},
		{"170 lines", map[string]string{dir + "main.go": code(170)}, "170 lines of code"},
		{"170 lines in two files", map[string]string{dir + "main.go": code(100), dir + "more.go": code(70)}, "170 lines of code"},
		{"170 lines in a folder below", map[string]string{dir + "main.go": code(100), dir + "more/more.go": code(70)}, "170 lines of code"},
		{"a long test", map[string]string{dir + "main_test.go": code(300)}, ""},
		{"no code", map[string]string{dir + "main.go": ""}, "0 lines of code"},
		{"no test", map[string]string{dir + "main_test.go": ""}, "no test"},
		{"the demo", map[string]string{"examples/demo/main.go": code(400)}, ""},
		{"elsewhere", map[string]string{"scripts/07-x/main.go": code(400)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range map[string]string{dir + "README.md": "# x\n", dir + "main.go": code(100), dir + "main_test.go": "package main\n"} {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			for name, text := range c.change {
				if files[name] = (&fstest.MapFile{Data: []byte(text)}); text == "" {
					delete(files, name)
				}
			}
			var found []string
			all, err := Check(files)
			for _, f := range all {
				if !strings.Contains(f, "gofmt") { // blank lines make up the length
					found = append(found, f)
				}
			}
			switch {
			case err != nil:
				t.Fatal(err)
			case c.want == "" && len(found) > 0:
				t.Errorf("found %q where all is well", found)
			case c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)):
				t.Errorf("found %q, want one finding with %q", found, c.want)
			}
		})
	}
}
