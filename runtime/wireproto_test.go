package runtime

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

func TestHelloSurvivesWithPadding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{verbs.MaxPrivateConnect, verbs.MaxPrivateAccept}).Draw(t, "room")
		h := hello{
			raw: rapid.Bool().Draw(t, "raw"), credits: rapid.Uint32().Draw(t, "credits"), recvSize: rapid.Uint32().Draw(t, "size"),
			user: rapid.SliceOfN(rapid.Byte(), 0, room-helloSize).Draw(t, "user"),
		}
		b := encodeHello(h)
		if len(b) > room {
			t.Fatalf("%d bytes of user data make %d, want at most %d", len(h.user), len(b), room)
		}
		padded := append(b, make([]byte, room-len(b))...)
		back, err := parseHello(padded)
		if err != nil {
			t.Fatal(err)
		}
		clear(padded) // the event is acknowledged, its memory used again
		if len(h.user) == 0 {
			h.user = nil
		}
		if !reflect.DeepEqual(back, h) {
			t.Fatalf("%+v became %+v", h, back)
		}
	})
}

func TestHelloLayoutIsFixed(t *testing.T) {
	b := encodeHello(hello{raw: true, credits: 0x01020304, recvSize: 0x0A0B0C0D, user: []byte("hi")})
	want := "VRBN\x01\x01\x02\x00" + "\x04\x03\x02\x01" + "\x0D\x0C\x0B\x0A" + strings.Repeat("\x00", 16) + "hi"
	if string(b) != want {
		t.Errorf("version 1 is\n%x, want\n%x", b, want)
	}
	if MaxDialData != 24 || MaxAcceptData != 164 {
		t.Errorf("room for %d and %d bytes of user data, want 24 and 164", MaxDialData, MaxAcceptData)
	}
}

func TestHostileHelloIsRefusedWithTheReason(t *testing.T) {
	good := append(encodeHello(hello{credits: 1, recvSize: 2, user: []byte("abc")}), 0, 0, 0)
	at := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	for _, c := range []struct {
		name  string
		b     []byte
		field string
		have  uint64
	}{
		{"nothing", nil, "length", 0},
		{"cut", good[:31], "length", 31},
		{"other protocol", at(0, 'x'), "magic", 0x7852424E},
		{"version", at(4, 2), "version", 2},
		{"flag", at(5, 0x81), "unknown flags", 0x81},
		{"user data longer than there is", at(6, 7), "length of user data", 7},
		{"reserved", at(7, 1), "reserved byte", 1},
		{"authentication", at(16, 5), "authentication", 5},
		{"authentication's end", at(31, 6), "authentication", 6},
		{"padding", at(37, 9), "padding", 9},
		{"user data shorter than there is", at(6, 1), "padding", 'b'},
	} {
		_, err := parseHello(c.b)
		e, ok := errors.AsType[*ProtocolError](err)
		if !ok || !strings.HasPrefix(e.Field, c.field) || e.Have != c.have || e.Message != "hello" ||
			!errors.Is(err, ErrProtocol) || !errors.Is(err, ErrPeerProtocol) {
			t.Errorf("%s: %v, want a ProtocolError about %s of %d", c.name, err, c.field, c.have)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a hello that does not fit must panic")
		}
	}()
	encodeHello(hello{user: make([]byte, MaxAcceptData+1)})
}

func TestRejectSurvivesCutAndPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code, text := rapid.Uint16().Draw(t, "code"), rapid.String().Draw(t, "text")
		b := encodeReject(code, text)
		if len(b) > rejectSize+rejectMaxText || len(b) > verbs.MaxPrivateReject {
			t.Fatalf("%d bytes do not fit", len(b))
		}
		gotCode, got, err := parseReject(append(b, make([]byte, verbs.MaxPrivateReject-len(b))...))
		if err != nil || gotCode != code {
			t.Fatalf("code %d became %d, %v", code, gotCode, err)
		}
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > utf8.RuneCountInString(text) {
			t.Fatalf("text %q became %q", text, got)
		}
	})
	for in, want := range map[string]string{
		"no room": "no room", "": "", "a\x1b[31mb\nc\xff": "a?[31mb?c?",
		strings.Repeat("x", 99) + "é": strings.Repeat("x", 99), strings.Repeat("y", 200): strings.Repeat("y", 100),
	} {
		if _, got, err := parseReject(encodeReject(rejectUser, in)); got != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", in, got, err, want)
		}
	}
	if b := encodeReject(0x0102, "ab"); string(b) != "VRBN\x01\x02\x02\x01ab" {
		t.Errorf("version 1 of a reject is %x", b)
	}
	bad := func(f func(b []byte) []byte) []byte { return f(append(encodeReject(1, "abc"), 0, 0)) }
	for field, b := range map[string][]byte{
		"length":         {1, 2, 3},
		"magic":          bad(func(b []byte) []byte { b[3] = 0; return b }),
		"version":        bad(func(b []byte) []byte { b[4] = 9; return b }),
		"length of text": bad(func(b []byte) []byte { b[5] = 6; return b }),
		"padding":        bad(func(b []byte) []byte { b[12] = 6; return b }),
		"text with":      bad(func(b []byte) []byte { b[9] = 0x1b; return b }),
	} {
		_, _, err := parseReject(b)
		if e, ok := errors.AsType[*ProtocolError](err); !ok || !strings.HasPrefix(e.Field, field) {
			t.Errorf("%v, want a ProtocolError about the %s", err, field)
		}
	}
	long := append(encodeReject(1, ""), bytes.Repeat([]byte("x"), 140)...)
	long[5] = 101
	if _, _, err := parseReject(long); !errors.Is(err, ErrProtocol) {
		t.Errorf("a text of 101 bytes: %v, want ErrProtocol", err)
	}
}

func TestFrameSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := frame{kind: frameData, credits: rapid.Uint32().Draw(t, "credits"), length: rapid.Uint32Range(0, 500).Draw(t, "length")}
		if rapid.Bool().Draw(t, "update") {
			f.kind, f.length, f.credits = frameCredit, 0, f.credits|1
		}
		var head [frameSize]byte
		f.encode(&head)
		b := append(head[:], make([]byte, 600)...) // the buffer is larger than the message
		if back, err := parseFrame(b, frameSize+int(f.length)); err != nil || back != f {
			t.Fatalf("%+v became %+v, %v", f, back, err)
		}
	})
	var head [frameSize]byte
	frame{kind: frameData, credits: 0x01020304, length: 0x05060708}.encode(&head)
	if want := "\x01\x01\x00\x00\x04\x03\x02\x01\x08\x07\x06\x05\x00\x00\x00\x00"; string(head[:]) != want {
		t.Errorf("version 1 is %x, want %x", head, want)
	}
}

func TestHostileFramesAreRefusedWithTheReason(t *testing.T) {
	make32 := func(f frame, change func(b []byte)) []byte {
		var head [frameSize]byte
		f.encode(&head)
		b := append(head[:], make([]byte, 16)...)
		if change != nil {
			change(b)
		}
		return b
	}
	data, update := frame{kind: frameData, length: 16}, frame{kind: frameCredit, credits: 3}
	for _, c := range []struct {
		name  string
		b     []byte
		total int
		field string
	}{
		{"negative", make32(data, nil), -1, "length of the message"},
		{"reserved", make32(data, func(b []byte) { b[13] = 1 }), 32, "reserved word"},
		{"shorter than a header", make32(data, nil), 15, "length of the message"},
		{"buffer shorter than a header", make32(data, nil)[:15], 32, "length of the message"},
		{"buffer shorter than the message", make32(data, nil)[:31], 32, "length of the message"},
		{"version", make32(data, func(b []byte) { b[0] = 0 }), 32, "version"},
		{"kind", make32(data, func(b []byte) { b[1] = 3 }), 32, "kind"},
		{"flags", make32(data, func(b []byte) { b[3] = 1 }), 32, "flags"},
		{"payload shorter than said", make32(data, nil), 31, "length of payload"},
		{"payload longer than said", make32(frame{kind: frameData, length: 15}, nil), 32, "length of payload"},
		{"huge length", make32(frame{kind: frameData, length: 1<<32 - 1}, nil), 15 + 16, "length of payload"},
		{"update with payload", make32(frame{kind: frameCredit, credits: 1, length: 16}, nil), 32, "length of a credit update"},
		{"update of nothing", make32(frame{kind: frameCredit}, nil), 16, "credits of a credit update"},
	} {
		_, err := parseFrame(c.b, c.total)
		e, ok := errors.AsType[*ProtocolError](err)
		if !ok || e.Field != c.field || e.Message != "frame" {
			t.Errorf("%s: %v, want a ProtocolError about the %s", c.name, err, c.field)
		}
	}
	if _, err := parseFrame(make32(update, nil), 16); err != nil {
		t.Errorf("a good update: %v", err)
	}
}

func TestFramesAllocateNothing(t *testing.T) {
	b := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		var head [frameSize]byte
		frame{kind: frameData, length: 48}.encode(&head)
		copy(b, head[:])
		if _, err := parseFrame(b, 64); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzFrame: whatever is accepted is what encode writes, and its payload lies in
// the message.
func FuzzFrame(f *testing.F) {
	var head [frameSize]byte
	frame{kind: frameData, length: 4}.encode(&head)
	f.Add(append(head[:], 1, 2, 3, 4), 20)
	frame{kind: frameCredit, credits: 1}.encode(&head)
	f.Add(head[:], 16)
	f.Fuzz(func(t *testing.T, b []byte, total int) {
		fr, err := parseFrame(b, total)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error is %T", err)
			}
			return
		}
		if frameSize+int(fr.length) != total || total > len(b) {
			t.Fatalf("%+v accepted for %d bytes in %d", fr, total, len(b))
		}
		var again [frameSize]byte
		if fr.encode(&again); !bytes.Equal(again[:], b[:frameSize]) {
			t.Fatalf("%x was accepted, encode writes %x", b[:frameSize], again)
		}
	})
}

// FuzzPrivateData: as FuzzFrame, for hello and reject.
func FuzzPrivateData(f *testing.F) {
	f.Add(encodeHello(hello{raw: true, credits: 3, recvSize: 4, user: []byte("user")}))
	f.Add(append(encodeHello(hello{}), 0, 0))
	f.Add(encodeReject(rejectMode, "both sides"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			again := encodeHello(h)
			if !bytes.HasPrefix(b, again) || nonZero(b[len(again):]) >= 0 {
				t.Fatalf("%x was accepted, encode writes %x", b, again)
			}
		} else if !errors.Is(err, ErrProtocol) {
			t.Fatalf("error is %T", err)
		}
		if code, text, err := parseReject(b); err == nil {
			again := encodeReject(code, text)
			if !bytes.HasPrefix(b, again) || nonZero(b[len(again):]) >= 0 {
				t.Fatalf("%x was accepted, encode writes %x", b, again)
			}
		} else if !errors.Is(err, ErrProtocol) {
			t.Fatalf("error is %T", err)
		}
	})
}
