package plog

import (
	"errors"
	"math"
	"testing"
)

// Rule: whatever numbers a Config and a region have, the log is refused with ErrGeometry, or lies inside the region.
func TestExtremeSizesOfLogs(t *testing.T) {
	numbers := []int{
		math.MinInt, math.MinInt32, -LineSize, -1, 0, 1, 2, LineSize, 2 * LineSize, MaxLanes, MaxLanes + 1, 1 << 20,
		MaxLaneSize - LineSize, MaxLaneSize, MaxLaneSize + 1, math.MaxInt32 &^ (LineSize - 1), math.MaxInt32,
		math.MaxInt &^ (LineSize - 1), math.MaxInt - 1, math.MaxInt,
	}
	for _, size := range numbers {
		if size < 0 {
			continue
		}
		for _, lanes := range numbers {
			for _, laneSize := range numbers {
				l, err := Config{Lanes: lanes, LaneSize: laneSize}.validate(size)
				switch {
				case err != nil:
					if !errors.Is(err, ErrGeometry) {
						t.Errorf("%d lanes of %d in %d bytes: %v, want ErrGeometry", lanes, laneSize, size, err)
					}
				case l.lanes < 1 || l.laneSize < 2*LineSize || l.ring(l.lanes-1) > size-l.laneSize || l.slot(l.lanes-1, slots-1) > l.ring(0)-slotSize:
					t.Errorf("%d lanes of %d in %d bytes: accepted as %+v", lanes, laneSize, size, l)
				}
			}
		}
	}
}
