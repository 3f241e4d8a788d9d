package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Written frames are read back, one by one, and a regular end differs from a truncated stream.
func TestFramesSurvive(t *testing.T) {
	var b bytes.Buffer
	sent := []Frame{
		{Kind: Ping, Payload: []byte{}},
		{Kind: Stdout, Job: 1<<32 - 1, Payload: bytes.Repeat([]byte("x"), MaxPayload)},
		{Kind: Halt, Job: 7, Payload: []byte("y")},
	}
	for _, f := range sent {
		if err := Write(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(b.Bytes())
	for i, want := range sent {
		got := must.Get(Read(&b))(t)
		if got.Kind != want.Kind || got.Job != want.Job || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("frame %d came as kind %d, job %d, %d bytes", i, got.Kind, got.Job, len(got.Payload))
		}
	}
	if _, err := Read(&b); err != io.EOF {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
	for _, n := range []int{1, headLen - 1, len(whole) - 1} {
		r := bytes.NewReader(whole[:n])
		var err error
		for err == nil {
			_, err = Read(r)
		}
		if err != io.ErrUnexpectedEOF {
			t.Errorf("cut after %d bytes: %v, want io.ErrUnexpectedEOF", n, err)
		}
	}
}

// A hostile header is refused before anything is allocated for it.
func TestHostileHeadsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		n    uint32
		kind byte
	}{
		{"a byte too long", MaxPayload + 1, byte(Stdout)},
		{"4 GB", 1<<32 - 1, byte(Stdout)},
		{"kind 0", 0, 0},
		{"kind after the last", 0, byte(kinds)},
		{"kind 255", 4, 255},
	} {
		head := make([]byte, headLen)
		binary.LittleEndian.PutUint32(head, c.n)
		head[4] = c.kind
		if _, err := Read(bytes.NewReader(head)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, want ErrFrame", c.name, err)
		}
	}
	if err := Write(io.Discard, Frame{Kind: Stdout, Payload: make([]byte, MaxPayload+1)}); !errors.Is(err, ErrFrame) {
		t.Errorf("writing too much: %v, want ErrFrame", err)
	}
}

// Any input is either a frame that is written back the same, or an error.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := WriteJSON(&b, Start, 3, Spec{Argv: []string{"true"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{1, 0, 0, 0, 2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		var back bytes.Buffer
		if err := Write(&back, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(in, back.Bytes()) {
			t.Errorf("%x was read as %x", in, back.Bytes())
		}
		var spec Spec
		_ = got.Decode(&spec) // must not panic
	})
}
