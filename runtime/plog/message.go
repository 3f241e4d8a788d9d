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
//	space    2    version 0      0                                                           writer
//	granted  3    version 0      lane     id head position generation laneSize descriptor    server
//	head     4    version 0      0        head                                               server
//	refused  5    version reason 0                                                           server
const (
	msgJoin    = 1
	msgSpace   = 2
	msgGranted = 3
	msgHead    = 4
	msgRefused = 5

	msgVersion = 1

	askSize     = 8 // of join, space and refused
	grantedSize = 8 + 5*8 + verbena.RemoteSize
	headSize    = 8 + 8
)

// reasons are the errors that a refusal names, by its number.
var reasons = []error{1: ErrLane, 2: ErrLaneHeld, 3: ErrFailed, 4: ErrMessage, 5: ErrFull}

// grant is what a writer gets to know of its lane.
type grant struct {
	lane  int
	log   layout // its number of lanes is not told
	state state
	at    verbena.Remote // the ring
}

func appendHead(b []byte, kind byte, reason uint16, lane int) []byte {
	b = append(b, kind, msgVersion)
	b = binary.LittleEndian.AppendUint16(b, reason)
	return binary.LittleEndian.AppendUint32(b, uint32(lane))
}

func (g *grant) append(b []byte) ([]byte, error) {
	b = appendHead(b, msgGranted, 0, g.lane)
	for _, v := range []uint64{g.log.id, g.state.head, g.state.claimed, g.state.generation, uint64(g.log.laneSize)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return g.at.AppendBinary(b)
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

// parseAsk reads a message of a writer. It is not trusted.
func parseAsk(b []byte) (kind byte, lane uint32, err error) {
	if len(b) != askSize || b[1] != msgVersion || b[2]|b[3] != 0 || b[0] != msgJoin && b[0] != msgSpace {
		return 0, 0, fmt.Errorf("%w: %d bytes: % x", ErrMessage, len(b), b[:min(len(b), askSize)])
	}
	return b[0], binary.LittleEndian.Uint32(b[4:]), nil
}

// parseAnswer checks that a message of the server is of the given kind and size, and returns its body.
// A refusal becomes its error. The message is not trusted.
func parseAnswer(b []byte, kind byte, size int) ([]byte, error) {
	if len(b) == askSize && b[0] == msgRefused && b[1] == msgVersion {
		if r := int(binary.LittleEndian.Uint16(b[2:])); r < len(reasons) && reasons[r] != nil {
			return nil, fmt.Errorf("%w (the server says)", reasons[r])
		}
	}
	if len(b) != size || b[0] != kind || b[1] != msgVersion || b[2]|b[3] != 0 {
		return nil, fmt.Errorf("%w: %d bytes: % x", ErrMessage, len(b), b[:min(len(b), askSize)])
	}
	return b[4:], nil
}

// parseGranted reads a grant of a lane. It is not trusted.
func parseGranted(b []byte, lane int) (g grant, err error) {
	b, err = parseAnswer(b, msgGranted, grantedSize)
	if err != nil {
		return g, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[4+8*i:]) }
	g = grant{
		lane: int(binary.LittleEndian.Uint32(b)), log: layout{lanes: 1, id: word(0)},
		state: state{head: word(1), claimed: word(2), generation: word(3)},
	}
	if err := g.at.UnmarshalBinary(b[4+5*8:]); err != nil {
		return g, err
	}
	size := word(4)
	switch g.log.laneSize = int(min(size, MaxLaneSize+1)); {
	case !g.log.sound(), g.at.Length != size, g.lane != lane:
	case g.state.claimed > maxPosition, g.state.head > g.state.claimed, g.state.claimed-g.state.head > g.log.lines():
	default:
		return g, nil
	}
	return g, fmt.Errorf("%w: lane %d of %d bytes with records from %d to %d, at %v", ErrMessage, g.lane, size, g.state.head, g.state.claimed, g.at)
}

// parseHead reads the answer to a question for space. It is not trusted.
func parseHead(b []byte) (uint64, error) {
	b, err := parseAnswer(b, msgHead, headSize)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[4:]), nil
}

// appendSpace returns the answer to a question for space.
func appendSpace(head uint64) []byte {
	return binary.LittleEndian.AppendUint64(appendHead(nil, msgHead, 0, 0), head)
}
