package rounds

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Values are numbers by name: the arguments of a side for a round, and its results.
type Values map[string]float64

// String returns the values as text for a pipe, "a=1 b=2.5", in the order of their names; Parse
// reads it.
func (v Values) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(strconv.FormatFloat(v[name], 'g', -1, 64))
	}
	return b.String()
}

// Parse reads the output of String. A name without a number, a duplicate name and a number that
// is not finite are errors.
func Parse(text string) (Values, error) {
	v := Values{}
	for field := range strings.FieldsSeq(text) {
		name, number, ok := strings.Cut(field, "=")
		f, err := strconv.ParseFloat(number, 64)
		if _, twice := v[name]; !ok || name == "" || twice || err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("rounds: %q is no NAME=NUMBER in %q", field, text)
		}
		v[name] = f
	}
	return v, nil
}
