//go:build race

package mem

import "testing"

func TestRaceBuildsRefusePointersOffHeap(t *testing.T) {
	a := mustMap(t, 4096, Options{})
	defer func() {
		if recover() == nil {
			t.Error("At with a pointer type must panic in race builds")
		}
	}()
	At[*int](a, a.Addr())
}
