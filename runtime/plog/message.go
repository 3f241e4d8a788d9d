package plog

import (
	"encoding/binary"
	"errors"
	"fmt"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// A writer and the server exchange messages only to lend a lane and to tell of free space: records are
// WRITEs. All numbers are little-endian.
//
//	         0    1       2      4        8
//	join     1    version 0      lane                                                        writer
//	space    2    version 0      number                                                      writer
//	granted  3    version 0      lane     id head position generation laneSize windows       server
//	head     4    version 0      number   head windows                                       server
//	refused  5    version reason 0                                                           server
//
// Windows are descriptors of 0 to 2 windows, one for each part of the ring that is open (layout.open). They
// have a number: 0 in granted, and one more with each change. A question for space has the number of the
// windows that the writer uses. The answer has the windows unless their number is the same.
const (
	msgJoin    = 1
	msgSpace   = 2
	msgGranted = 3
	msgHead    = 4
	msgRefused = 5

	msgVersion = 2

	askSize     = 8       // of join, space and refused
	grantedSize = 8 + 5*8 // and the windows
	headSize    = 8 + 8   // and the windows
)

// reasons are the errors that a refusal names, by its number.
var reasons = []error{1: ErrLane, 2: ErrLaneHeld, 3: ErrFailed, 4: ErrMessage, 5: ErrFull}

// grant is what a writer gets to know of its lane.
type grant struct {
	lane  int
	log   layout // its number of lanes is not told
	state state
	// windows reach what log.open says is open of the ring.
	windows []verbena.Remote
}

// space is the answer to a question for space.
type space struct {
	number  uint32           // of the windows
	head    uint64           // position of the oldest record that the server keeps
	windows []verbena.Remote // as in grant; none if the writer has those of this number
}

func appendHead(b []byte, kind byte, reason uint16, number uint32) []byte {
	b = append(b, kind, msgVersion)
	b = binary.LittleEndian.AppendUint16(b, reason)
	return binary.LittleEndian.AppendUint32(b, number)
}

func (g *grant) append(b []byte) ([]byte, error) {
	b = appendHead(b, msgGranted, 0, uint32(g.lane))
	for _, v := range []uint64{g.log.id, g.state.head, g.state.claimed, g.state.generation, uint64(g.log.laneSize)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return appendWindows(b, g.windows)
}

func (s *space) append(b []byte) ([]byte, error) {
	b = appendHead(b, msgHead, 0, s.number)
	return appendWindows(binary.LittleEndian.AppendUint64(b, s.head), s.windows)
}

func appendWindows(b []byte, windows []verbena.Remote) (_ []byte, err error) {
	for _, w := range windows {
		if b, err = w.AppendBinary(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// refusal returns the message for an error.
func refusal(err error) []byte {
	reason := 3
	for i, r := range reasons {
		if r != nil && errors.Is(err, r) {
			reason = i
		}
	}
	return appendHead(nil, msgRefused, uint16(reason), 0)
}

// parseAsk reads a message of a writer: its kind, and the number of the lane or of the windows. It is not
// trusted.
func parseAsk(b []byte) (kind byte, number uint32, err error) {
	if len(b) != askSize || b[1] != msgVersion || b[2]|b[3] != 0 || b[0] != msgJoin && b[0] != msgSpace {
		return 0, 0, fmt.Errorf("%w: %d bytes: % x", ErrMessage, len(b), b[:min(len(b), askSize)])
	}
	return b[0], binary.LittleEndian.Uint32(b[4:]), nil
}

// parseAnswer checks that a message of the server is of the given kind, and has at least the given size
// and whole windows behind it. It returns the body. A refusal becomes its error. The message is not trusted.
func parseAnswer(b []byte, kind byte, size int) ([]byte, error) {
	if len(b) == askSize && b[0] == msgRefused && b[1] == msgVersion {
		if r := int(binary.LittleEndian.Uint16(b[2:])); r < len(reasons) && reasons[r] != nil {
			return nil, fmt.Errorf("%w (the server says)", reasons[r])
		}
	}
	if len(b) < size || (len(b)-size)%verbena.RemoteSize != 0 || b[0] != kind || b[1] != msgVersion || b[2]|b[3] != 0 {
		return nil, fmt.Errorf("%w: %d bytes: % x", ErrMessage, len(b), b[:min(len(b), askSize)])
	}
	return b[4:], nil
}

// parseWindows reads windows on parts of a ring.
func parseWindows(b []byte, parts []span) (windows []verbena.Remote, err error) {
	if len(b) != len(parts)*verbena.RemoteSize {
		return nil, fmt.Errorf("%w: %d bytes of windows on %d parts of a ring", ErrMessage, len(b), len(parts))
	}
	for i, s := range parts {
		var w verbena.Remote
		if err := w.UnmarshalBinary(b[i*verbena.RemoteSize:][:verbena.RemoteSize]); err != nil {
			return nil, err
		}
		if w.Length != uint64(s.n) {
			return nil, fmt.Errorf("%w: a window of %d bytes on %d bytes of a ring", ErrMessage, w.Length, s.n)
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// parseGranted reads a grant of a lane. It is not trusted.
func parseGranted(b []byte, lane int) (g grant, err error) {
	b, err = parseAnswer(b, msgGranted, grantedSize)
	if err != nil {
		return g, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[4+8*i:]) }
	size := word(4)
	g = grant{
		lane: int(binary.LittleEndian.Uint32(b)), log: layout{lanes: 1, id: word(0), laneSize: int(min(size, MaxLaneSize+1))},
		state: state{head: word(1), claimed: word(2), generation: word(3)},
	}
	switch {
	case !g.log.sound(), g.lane != lane:
	case g.state.claimed > maxPosition, g.state.head > g.state.claimed, g.state.claimed-g.state.head > g.log.lines():
	default:
		g.windows, err = parseWindows(b[4+5*8:], g.log.open(g.state.claimed, g.state.head))
		return g, err
	}
	return g, fmt.Errorf("%w: lane %d of %d bytes with records from %d to %d", ErrMessage, g.lane, size, g.state.head, g.state.claimed)
}

// parseSpace reads the answer to a question for space of a writer that uses the windows with a number,
// and whose records begin at claimed. It is not trusted.
func parseSpace(b []byte, log layout, claimed uint64, number uint32) (s space, err error) {
	b, err = parseAnswer(b, msgHead, headSize)
	if err != nil {
		return s, err
	}
	s = space{number: binary.LittleEndian.Uint32(b), head: binary.LittleEndian.Uint64(b[4:])}
	if s.head < claimed && claimed-s.head > log.lines() {
		return s, fmt.Errorf("%w: the oldest record is at %d, more than a ring of %d lines before %d", ErrMessage, s.head, log.lines(), claimed)
	}
	var parts []span
	if s.number != number {
		parts = log.open(claimed, s.head)
	}
	s.windows, err = parseWindows(b[4+8:], parts)
	return s, err
}
