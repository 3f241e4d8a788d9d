package leak

import (
	"maps"
	"slices"
	"testing"
)

// Rule: librdmacm keeps one context of each device; a second one is a leak.
func TestContextsThatLibrdmacmKeeps(t *testing.T) {
	const u0, u1, ev = "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", contextEvents
	for _, c := range []struct {
		name        string
		before, now map[int]string
		want        int // how many of now are ignored
	}{
		{"one context of each of two devices", nil, map[int]string{5: u0, 6: ev, 7: u1, 8: ev}, 4},
		{"a second context of one device", nil, map[int]string{5: u0, 6: ev, 7: u0, 8: ev}, 2},
		{"it was open before", map[int]string{5: u0, 6: ev}, map[int]string{5: u0, 6: ev, 7: u0, 8: ev}, 0},
		{"a completion channel beside it", nil, map[int]string{5: u0, 6: ev, 9: ev}, 2},
		{"an event descriptor without a context", nil, map[int]string{6: ev}, 0},
		{"something else", nil, map[int]string{5: "/dev/null", 6: "socket:[1]"}, 0},
	} {
		if got := keptByCM(c.before, c.now); len(got) != c.want {
			t.Errorf("%s: %v are passed over, want %d", c.name, slices.Sorted(maps.Keys(got)), c.want)
		}
	}
}
