package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// header names the columns of the table.
var header = []string{"figure", "unit", "baseline", "ours", "ours to baseline", "goal", "met"}

// none is printed where there is no number.
const none = "–"

// Table writes the rows as text: a line for each, a number with its spread over the rounds in
// brackets, then the notes and reasons.
func Table(w io.Writer, rows []Row) error {
	lines := [][]string{header}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	widths := make([]int, len(header))
	for _, l := range lines {
		for i, c := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for n, l := range lines {
		for i, c := range l {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
			if i < len(l)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)))
			}
		}
		b.WriteByte('\n')
		if n == 0 {
			for i, width := range widths {
				if i > 0 {
					b.WriteString("  ")
				}
				b.WriteString(strings.Repeat("-", width))
			}
			b.WriteByte('\n')
		}
	}
	for _, r := range rows {
		if r.Why != "" {
			fmt.Fprintf(&b, "\n%s: not measured: %s", r.Figure, r.Why)
		} else if r.Note != "" {
			fmt.Fprintf(&b, "\n%s: %s", r.Figure, r.Note)
		}
	}
	if strings.Contains(b.String(), "\n\n") {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cells returns the columns of one row.
func (r Row) cells() []string {
	met := "yes"
	switch {
	case r.Why != "":
		met = "not measured"
	case r.reported:
		met = none
	case !r.Met:
		met = "NO"
	}
	var s Spread
	if r.Spread != nil {
		s = *r.Spread
	}
	beside := none
	switch {
	case r.of == Difference && r.Difference != nil:
		beside = signed(*r.Difference) + brackets(s.Difference, signed)
	case r.Ratio != nil:
		beside = "× " + Number(*r.Ratio) + brackets(s.Ratio, Number)
	}
	return []string{r.Figure, r.Unit, cell(r.Baseline, s.Baseline), cell(r.Ours, s.Ours), beside, r.Goal, met}
}

func cell(v *float64, s *Span) string {
	if v == nil {
		return none
	}
	return Number(*v) + brackets(s, Number)
}

func brackets(s *Span, number func(float64) string) string {
	if s == nil || s[0] == s[1] {
		return ""
	}
	return " (" + number(s[0]) + " to " + number(s[1]) + ")"
}

func signed(v float64) string {
	if v > 0 {
		return "+" + Number(v)
	}
	return Number(v)
}

// digits is the number of digits in the table: more would be noise.
const digits = 3

// Number formats a number for the table: three significant digits, without an exponent for the
// usual figures of a benchmark.
func Number(v float64) string {
	if v == 0 {
		return "0"
	}
	places := digits - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	places = min(max(places, 0), 9)
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}
