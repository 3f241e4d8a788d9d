package sys

import (
	"errors"
	"slices"
	"testing"
)

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{
		"": nil, "\n": nil, "0\n": {0}, "0-3": {0, 1, 2, 3}, "0-1,4,6-7\n": {0, 1, 4, 6, 7}, "65535": {65535},
	} {
		if got, err := ParseList(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"x", "-", "1-", "-1", "3-1", "1,1", "2,1", "0-3,2", "1,", ",1", "65536", "0-4294967295", "1-2-3", "1 2", "99999999999999999999"} {
		if got, err := ParseList(s); err == nil {
			t.Errorf("%q = %v, want an error", s, got)
		}
	}
}

// A parsed list is ascending and bounded for any input.
func FuzzParseList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8,10-11\n", "0-65535", "0-4294967295", "1-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseList(s)
		if err != nil {
			if list != nil {
				t.Fatalf("%q: a list with an error", s)
			}
			return
		}
		for i, c := range list {
			if c < 0 || c >= maxCPU || (i > 0 && c <= list[i-1]) {
				t.Fatalf("%q: element %d is %d", s, i, c)
			}
		}
	})
}

func FuzzParseMemTotal(f *testing.F) {
	f.Add("Node 0 MemTotal:       8144 kB\nNode 0 MemFree: 1 kB\n")
	f.Add("Node 0 MemTotal: 18446744073709551615 kB")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseMemTotal(s); n%1024 != 0 || (err != nil && n != 0) {
			t.Fatalf("%q: %d, %v", s, n, err)
		}
	})
}

// Rule: MemNodes returns the nodes listed in the status, and an error for a status without them.
func TestParseMemNodes(t *testing.T) {
	got, err := parseMemNodes("Name:\tx\nMems_allowed:\t00000003\nMems_allowed_list:\t0-1,3\nSeccomp:\t0\n")
	if err != nil || !slices.Equal(got, []int{0, 1, 3}) {
		t.Errorf("%v, %v, want 0, 1 and 3", got, err)
	}
	if got, err := parseMemNodes("Name:\tx\n"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, %v of nothing, want ErrUnsupported", got, err)
	}
	if got, err := parseMemNodes("Mems_allowed_list:\tx\n"); err == nil {
		t.Errorf("%v of nonsense", got)
	}
	if got, err := MemNodes(); err == nil && !slices.Contains(got, CurrentNode()) || err != nil && !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, %v here, want the node %d among them", got, err, CurrentNode())
	}
}

func TestNodesOfThisMachine(t *testing.T) {
	nodes, err := Nodes()
	if err != nil {
		t.Fatal(err)
	}
	cpus := 0
	current := false
	for _, n := range nodes {
		cpus += len(n.CPUs)
		current = current || n.ID == CurrentNode()
	}
	if cpus == 0 || !current {
		t.Errorf("%+v: want at least one processor, and the current node %d", nodes, CurrentNode())
	}
}
