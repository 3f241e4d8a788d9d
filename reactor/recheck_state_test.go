package reactor

import "testing"

// Rule: an event is owed for what comes after a poll of the armed queue has
// found its end, and for nothing else: not for what was there before the arming,
// nor for what one poll had no room for. The event settles it.
func TestWhatIsOwedAnEvent(t *testing.T) {
	const room = 4
	for _, c := range []struct {
		steps string // a: arm, e: poll nothing, s: poll some, f: poll all there is room for, v: the event
		owed  bool
	}{
		{"s", false}, {"es", false}, // not armed
		{"as", false}, {"af", false}, {"aff", false}, {"afs", false}, {"affs", false}, // was there, or may have been
		{"aes", true}, {"ass", true}, {"affss", true}, {"aef", true}, {"aese", true},
		{"aesv", false}, {"aev", false}, {"aevs", false}, {"aesvs", false}, {"aesvaes", true},
	} {
		s := &cqState{}
		for _, step := range c.steps {
			switch step {
			case 'a':
				s.armed = true
			case 'e':
				s.expect(0, room)
			case 's':
				s.expect(room-1, room)
			case 'f':
				s.expect(room, room)
			case 'v':
				s.disarm()
			}
		}
		if s.owed != c.owed {
			t.Errorf("%s: owed %t, want %t", c.steps, s.owed, c.owed)
		}
	}
}
