package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

var update = flag.Bool("update", false, "write the golden files")

// sample returns a row of each kind.
func sample() []Row {
	ours, base := rounds.Series{100, 130, 101, 99, 102}, rounds.Series{20, 25, 21, 20, 22}
	return []Row{
		Measured("CPU per operation", "ns", AtMost(80, Difference, "at most 80 ns more"), base, ours, "lists of 128"),
		Measured("the same, too dear", "ns", AtMost(79, Difference, "at most 79 ns more"), base, ours, ""),
		Measured("rate", "M/s", AtLeast(0.95, Ratio, "at least 0.95 ×"), rounds.Series{0.065, 0.064, 0.066}, rounds.Series{0.062, 0.061, 0.063}, ""),
		Measured("latency", "µs", AtMost(2, Value, "at most 2 µs"), nil, rounds.Series{1.2345}, ""),
		Measured("allocations per operation", "", Below(0.001, Value, "below 0.001"), nil, rounds.Series{0.001}, ""),
		Measured("p99.9", "µs", Reported(Ratio), rounds.Series{12345, 2345, 9876}, rounds.Series{1, 0, 3}, ""),
		Missing("on a device", "µs", AtMost(1.15, Ratio, "at most 1.15 ×"), "there is none here"),
	}
}

// Rule: the table and the JSON of each kind of row equal those in testdata (go test -update
// writes them).
func TestGolden(t *testing.T) {
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table.txt": func(b *bytes.Buffer) error { return Table(b, sample()) },
		"rows.json": func(b *bytes.Buffer) error { return JSON(b, sample()) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := must.Get(os.ReadFile(file))(t)
		if got := got.String(); got != strings.ReplaceAll(string(want), "\r\n", "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Rule: each row of the JSON has exactly the fields that a reader of any suite requires, null
// where there is no number, and otherwise only documented fields.
func TestFieldsOfEveryRow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	if err := JSONFile(file, sample()); err != nil {
		t.Fatal(err)
	}
	text := must.Get(os.ReadFile(file))(t)
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != len(sample()) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		for _, name := range []string{"figure", "unit", "baseline", "ours", "ratio", "goal", "met"} {
			if _, ok := r[name]; !ok {
				t.Errorf("%v has no %s", r["figure"], name)
			}
			delete(r, name)
		}
		for _, name := range []string{"difference", "spread", "note", "why"} {
			delete(r, name)
		}
		if len(r) != 0 {
			t.Errorf("fields that nobody knows: %v", r)
		}
	}
	var empty bytes.Buffer
	if err := JSON(&empty, nil); err != nil || strings.TrimSpace(empty.String()) != "[]" {
		t.Errorf("no rows are %q, %v", empty.String(), err)
	}
}

// Rule: a goal about a ratio or a difference is not met without a baseline, none is met without a
// measurement, and the limit itself satisfies "at most" but not "below".
func TestGoals(t *testing.T) {
	one := rounds.Series{1}
	for what, c := range map[string]struct {
		row  Row
		want bool
	}{
		"no baseline for a ratio":      {Measured("f", "", AtMost(2, Ratio, ""), nil, one, ""), false},
		"no baseline for a difference": {Measured("f", "", AtMost(2, Difference, ""), nil, one, ""), false},
		"no rounds":                    {Measured("f", "", AtMost(2, Value, ""), nil, nil, ""), false},
		"no rounds, reported":          {Measured("f", "", Reported(Value), nil, nil, ""), false},
		"missing":                      {Missing("f", "", Reported(Value), "why"), false},
		"at the limit":                 {Measured("f", "", AtMost(1, Value, ""), nil, one, ""), true},
		"at the limit, below":          {Measured("f", "", Below(1, Value, ""), nil, one, ""), false},
		"at the limit, at least":       {Measured("f", "", AtLeast(1, Value, ""), nil, one, ""), true},
		"under it, at least":           {Measured("f", "", AtLeast(1.1, Value, ""), nil, one, ""), false},
		"by a baseline of nothing":     {Measured("f", "", AtLeast(0.5, Ratio, ""), rounds.Series{0}, one, ""), false},
		"reported":                     {Measured("f", "", Reported(Ratio), one, one, ""), true},
	} {
		if c.row.Met != c.want {
			t.Errorf("%s: met is %v", what, c.row.Met)
		}
	}
}

// Rule: a number has three significant digits.
func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 1.2345: "1.23", 123456: "123456", 0.00012345: "0.000123", -42.5: "-42.5",
		99.96: "100", 1e-12: "0", -1e-12: "0", 0.5: "0.5"} {
		if got := Number(v); got != want {
			t.Errorf("%g is written %q, want %q", v, got, want)
		}
	}
}
