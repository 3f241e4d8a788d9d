package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Kind is the type of a frame's payload.
type Kind uint8

// The kinds; the package comment lists their senders.
const (
	Hello Kind = iota + 1
	Ping
	Pong
	Start
	Started
	Signal
	Stdout
	Stderr
	Exit
	Blocked
	Halt
	kinds // their number, plus one
)

// MaxPayload is the longest payload in bytes: enough for a command with a large environment;
// output is split into smaller pieces.
const MaxPayload = 1 << 20

// headLen is the length of a frame's header: length, kind, job.
const headLen = 4 + 1 + 4

// ErrFrame is an invalid header. Nothing after it can be read.
var ErrFrame = errors.New("rxevm: not a frame")

// Frame is one message. The payload belongs to the frame's owner.
type Frame struct {
	Kind    Kind
	Job     uint32
	Payload []byte
}

// Write writes one frame in one call of w.Write. It blocks as w does. Concurrent callers must
// serialize their use of w.
func Write(w io.Writer, f Frame) error {
	if len(f.Payload) > MaxPayload {
		return fmt.Errorf("%w: a payload of %d bytes, at most %d", ErrFrame, len(f.Payload), MaxPayload)
	}
	b := make([]byte, headLen, headLen+len(f.Payload))
	binary.LittleEndian.PutUint32(b, uint32(len(f.Payload)))
	b[4] = byte(f.Kind)
	binary.LittleEndian.PutUint32(b[5:], f.Job)
	_, err := w.Write(append(b, f.Payload...))
	return err
}

// WriteJSON writes a frame whose payload is v in JSON.
func WriteJSON(w io.Writer, kind Kind, job uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(w, Frame{Kind: kind, Job: job, Payload: b})
}

// Read reads one frame. It blocks as r does. The error is io.EOF between two frames,
// io.ErrUnexpectedEOF inside one, [ErrFrame] for an invalid one.
func Read(r io.Reader) (Frame, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(head[4]), Job: binary.LittleEndian.Uint32(head[5:])}
	n := binary.LittleEndian.Uint32(head[:])
	if n > MaxPayload || f.Kind == 0 || f.Kind >= kinds {
		return Frame{}, fmt.Errorf("%w: kind %d, %d bytes", ErrFrame, f.Kind, n)
	}
	f.Payload = make([]byte, n)
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

// Decode unmarshals the payload's JSON into v.
func (f Frame) Decode(v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("rxevm: payload of kind %d: %w", f.Kind, err)
	}
	return nil
}
