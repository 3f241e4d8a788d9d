package sys

import (
	"io"
	"strings"
	"testing"
)

// Rule: two interfaces are the same if they refer to one object, as one type.
func TestSame(t *testing.T) {
	a, b := strings.NewReader("x"), strings.NewReader("x")
	type other struct{ io.Reader }
	for what, c := range map[string]struct {
		x, y io.Reader
		same bool
	}{
		"one object":                 {a, a, true},
		"two that are equal":         {a, b, false},
		"nothing":                    {nil, nil, true},
		"an object and nothing":      {a, nil, false},
		"an object, as another type": {a, &other{a}, false},
	} {
		if Same(c.x, c.y) != c.same {
			t.Errorf("%s: want %v", what, c.same)
		}
	}
}
