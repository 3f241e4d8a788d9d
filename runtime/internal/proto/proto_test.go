package proto

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// TestMain fails the run when goroutines, descriptors or mappings are left behind.
func TestMain(m *testing.M) { leak.Main(m) }

func TestHelloSurvivesWithPadding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{verbs.MaxPrivateConnect, verbs.MaxPrivateAccept}).Draw(t, "room")
		h := Hello{
			Raw: rapid.Bool().Draw(t, "raw"), Credits: rapid.Uint16().Draw(t, "credits"), Most: rapid.Uint16().Draw(t, "most"), RecvSize: rapid.Uint32().Draw(t, "size"),
			LargeBits: rapid.Uint8Max(maxLargeBits).Draw(t, "large"),
			Offered:   Features(rapid.Uint32().Draw(t, "offered")),
			User:      rapid.SliceOfN(rapid.Byte(), 0, room-HelloSize).Draw(t, "user"),
		}
		h.Required = h.Offered & KnownFeatures
		b := EncodeHello(h)
		if len(b) > room {
			t.Fatalf("%d bytes of user data make %d, want at most %d", len(h.User), len(b), room)
		}
		padded := append(b, make([]byte, room-len(b))...)
		back, err := ParseHello(padded)
		if err != nil {
			t.Fatal(err)
		}
		clear(padded) // the event is acknowledged and its memory reused
		if len(h.User) == 0 {
			h.User = nil
		}
		if !reflect.DeepEqual(back, h) {
			t.Fatalf("%+v became %+v", h, back)
		}
	})
}

func TestHelloLayoutIsFixed(t *testing.T) {
	b := EncodeHello(Hello{Raw: true, Credits: 0x0102, Most: 0x0304, RecvSize: 0x0A0B0C0D, LargeBits: 24, Offered: 0x11121314, Required: 0x01020304, User: []byte("hi")})
	want := "VRBN\x04\x01\x02\x18" + "\x02\x01\x04\x03" + "\x0D\x0C\x0B\x0A" + "\x14\x13\x12\x11" + "\x04\x03\x02\x01" + strings.Repeat("\x00", 8) + "hi"
	if string(b) != want {
		t.Errorf("version 4 is\n%x, want\n%x", b, want)
	}
}

func TestHostileHelloIsRefusedWithTheReason(t *testing.T) {
	good := append(EncodeHello(Hello{Credits: 1, RecvSize: 2, User: []byte("abc")}), 0, 0, 0)
	at := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	with := func(b []byte, h Hello) []byte {
		return slices.Concat(b[:16], EncodeHello(h)[16:helloDetails], b[helloDetails:])
	}
	for _, c := range []struct {
		name  string
		b     []byte
		field string
		have  uint64
	}{
		{"nothing", nil, "length", 0},
		{"cut", good[:31], "length", 31},
		{"other protocol", at(0, 'x'), "magic", 0x7852424E},
		{"version", at(4, 1), "version", 1},
		{"flag", at(5, 0x81), "unknown flags", 0x81},
		{"user data longer than there is", at(6, 7), "length of user data", 7},
		{"large messages", at(7, 31), "size of large messages", 31},
		{"version 3", at(4, 3), "version", 3},
		{"a required feature that is not offered", at(20, 5), "features required and not offered", 5},
		{"a required feature that is not known", with(good, Hello{Offered: 7, Required: 4}), "required features", 4},
		{"details", at(24, 5), "details without a feature", 5},
		{"the details' end", at(31, 6), "details without a feature", 6},
		{"padding", at(37, 9), "padding", 9},
		{"user data shorter than there is", at(6, 1), "padding", 'b'},
	} {
		_, bad := ParseHello(c.b)
		if bad == nil || !strings.HasPrefix(bad.Field, c.field) || bad.Have != c.have || bad.Message != "hello" {
			t.Errorf("%s: %v, want it refused for %s of %d", c.name, bad, c.field, c.have)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a hello that does not fit must panic")
		}
	}()
	EncodeHello(Hello{User: make([]byte, helloMaxUser+1)})
}

// Rule: a hello that offers features that this version does not know is accepted, with whatever these features
// say in their details, and the fields of this version are read from it.
func TestUnknownFeaturesAreIgnored(t *testing.T) {
	b := EncodeHello(Hello{Credits: 3, Most: 9, RecvSize: 4096, Offered: 1 << 31, User: []byte("abc")})
	copy(b[helloDetails:], "details!")
	h, bad := ParseHello(append(b, "more details"...))
	if want := (Hello{Credits: 3, Most: 9, RecvSize: 4096, Offered: 1 << 31, User: []byte("abc")}); bad != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("%+v, %v; want %+v", h, bad, want)
	}
}

func TestRejectSurvivesCutAndPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Reject{rapid.Uint8().Draw(t, "code"), rapid.String().Draw(t, "text"), rapid.SliceOfN(rapid.Byte(), 0, RejectMaxData).Draw(t, "data")}
		b := r.Encode()
		if len(b) > verbs.MaxPrivateReject {
			t.Fatalf("%d bytes do not fit", len(b))
		}
		got, err := ParseReject(append(b, make([]byte, verbs.MaxPrivateReject-len(b))...))
		if err != nil || got.Code != r.Code || !bytes.Equal(got.Data, r.Data) {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
		if !utf8.ValidString(got.Text) || utf8.RuneCountInString(got.Text) > utf8.RuneCountInString(r.Text) {
			t.Fatalf("text %q became %q", r.Text, got.Text)
		}
	})
	for in, want := range map[string]string{
		"no room": "no room", "": "", "a\x1b[31mb\nc\xff": "a?[31mb?c?",
		strings.Repeat("x", 99) + "é": strings.Repeat("x", 99), strings.Repeat("y", 200): strings.Repeat("y", 100),
	} {
		if got, err := ParseReject(Reject{Code: RejectClosed, Text: in}.Encode()); got.Text != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", in, got.Text, err, want)
		}
	}
	if b := (Reject{2, "ab", []byte("c")}).Encode(); string(b) != "VRBN\x03\x02\x02\x01abc" { // forever: see rejectVersion
		t.Errorf("a reject is %x", b)
	}
	bad := func(f func(b []byte) []byte) []byte { return f(append(Reject{Code: 1, Text: "abc"}.Encode(), 0, 0)) }
	for field, b := range map[string][]byte{
		"length":         {1, 2, 3},
		"magic":          bad(func(b []byte) []byte { b[3] = 0; return b }),
		"version":        bad(func(b []byte) []byte { b[4] = 9; return b }),
		"length of text": bad(func(b []byte) []byte { b[5] = 6; return b }),
		"length of data": bad(func(b []byte) []byte { b[7] = 3; return b }),
		"padding":        bad(func(b []byte) []byte { b[12] = 6; return b }),
		"text with":      bad(func(b []byte) []byte { b[9] = 0x1b; return b }),
	} {
		if _, bad := ParseReject(b); bad == nil || !strings.HasPrefix(bad.Field, field) {
			t.Errorf("%v, want it refused for the %s", bad, field)
		}
	}
	long := append(Reject{Code: 1}.Encode(), bytes.Repeat([]byte("x"), 140)...)
	long[5] = 101
	if _, bad := ParseReject(long); bad == nil {
		t.Error("a text of 101 bytes is taken")
	}
	long[5], long[7] = 0, RejectMaxData+1
	if _, bad := ParseReject(long); bad == nil {
		t.Errorf("data of %d bytes is taken", RejectMaxData+1)
	}
}

func TestFrameSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Frame{Kind: rapid.SampledFrom([]Kind{Data, Credit, Recall, Return, Large, Fetched, First}).Draw(t, "kind"),
			More: rapid.Bool().Draw(t, "more"), Credits: rapid.Uint32Range(1, 1<<32-1).Draw(t, "credits")}
		switch f.Kind {
		case Data, Large:
			if f.Length = SourceSize; f.Kind == Data {
				f.Length = rapid.Uint32Range(0, 500).Draw(t, "length")
			}
			f.Number = rapid.Uint32().Draw(t, "number")
			f.Answer = f.Number != 0 && rapid.Bool().Draw(t, "answer")
		case Recall:
			f.Number = rapid.Uint32Range(1, 1<<32-1).Draw(t, "wanted")
		case First:
			f.Credits = 0
		case Return:
			f.Number = rapid.Uint32().Draw(t, "unused")
		}
		var head [FrameSize]byte
		f.Encode(&head)
		b := append(head[:], make([]byte, 600)...) // the buffer is larger than the message
		if back, err := ParseFrame(b, FrameSize+int(f.Length)); err != nil || back != f {
			t.Fatalf("%+v became %+v, %v", f, back, err)
		}
	})
	var head [FrameSize]byte
	for want, f := range map[string]Frame{
		"\x04\x01\x01\x00\x04\x03\x02\x01\x08\x07\x06\x05\x0C\x0B\x0A\x09": {Kind: Data, More: true, Credits: 0x01020304, Length: 0x05060708, Number: 0x090A0B0C},
		"\x04\x05\x02\x00\x00\x00\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00": {Kind: Large, Length: SourceSize, Answer: true, Number: 1},
	} {
		if f.Encode(&head); string(head[:]) != want {
			t.Errorf("version 4 of %+v is %x, want %x", f, head, want)
		}
	}
}

func TestHostileFramesAreRefusedWithTheReason(t *testing.T) {
	make32 := func(f Frame, change func(b []byte)) []byte {
		var head [FrameSize]byte
		f.Encode(&head)
		b := append(head[:], make([]byte, 16)...)
		if change != nil {
			change(b)
		}
		return b
	}
	data, update := Frame{Kind: Data, Length: 16}, Frame{Kind: Credit, Credits: 3}
	for _, c := range []struct {
		name  string
		b     []byte
		total int
		field string
	}{
		{"negative", make32(data, nil), -1, "length of the message"},
		{"an update with a number", make32(Frame{Kind: Credit, Credits: 3, Number: 1}, nil), 16, "number of a control frame"},
		{"a recall of nothing", make32(Frame{Kind: Recall}, nil), 16, "credits to give up"},
		{"an answer to no question", make32(Frame{Kind: Data, Length: 16, Answer: true}, nil), 32, "number of an answer"},
		{"a return that answers", make32(Frame{Kind: Return, Answer: true, Number: 1}, nil), 16, "flags of a control frame"},
		{"version 3", make32(data, func(b []byte) { b[0] = 3 }), 32, "version"},
		{"shorter than a header", make32(data, nil), 15, "length of the message"},
		{"buffer shorter than a header", make32(data, nil)[:15], 32, "length of the message"},
		{"buffer shorter than the message", make32(data, nil)[:31], 32, "length of the message"},
		{"version", make32(data, func(b []byte) { b[0] = 0 }), 32, "version"},
		{"kind", make32(data, func(b []byte) { b[1] = byte(lastKind) + 1 }), 32, "kind"},
		{"large without a source", make32(Frame{Kind: Large, Length: 15}, nil), 31, "length of a source"},
		{"answer with payload", make32(Frame{Kind: Fetched, Length: 16}, nil), 32, "length of a control frame"},
		{"first frame with payload", make32(Frame{Kind: First, Length: 16}, nil), 32, "length of a control frame"},
		{"first frame with a credit", make32(Frame{Kind: First, Credits: 1}, nil), 16, "credits of a first frame"},
		{"no kind", make32(data, func(b []byte) { b[1] = 0 }), 32, "kind"},
		{"flag", make32(data, func(b []byte) { b[2] = 4 }), 32, "flags"},
		{"flags", make32(data, func(b []byte) { b[3] = 1 }), 32, "flags"},
		{"payload shorter than said", make32(data, nil), 31, "length of payload"},
		{"payload longer than said", make32(Frame{Kind: Data, Length: 15}, nil), 32, "length of payload"},
		{"huge length", make32(Frame{Kind: Data, Length: 1<<32 - 1}, nil), 15 + 16, "length of payload"},
		{"update with payload", make32(Frame{Kind: Credit, Credits: 1, Length: 16}, nil), 32, "length of a control frame"},
		{"update of nothing", make32(Frame{Kind: Credit}, nil), 16, "credits of a credit update"},
	} {
		_, bad := ParseFrame(c.b, c.total)
		if bad == nil || bad.Field != c.field || bad.Message != "frame" {
			t.Errorf("%s: %v, want it refused for the %s", c.name, bad, c.field)
		}
	}
	if _, err := ParseFrame(make32(update, nil), 16); err != nil {
		t.Errorf("a good update: %v", err)
	}
}

func TestSourceLayoutAndBounds(t *testing.T) {
	var b [SourceSize]byte
	in := Source{Addr: 0x0102030405060708, Length: 0x0A0B, Key: 0x11121314}
	in.Encode(&b)
	if want := "\x08\x07\x06\x05\x04\x03\x02\x01" + "\x0B\x0A\x00\x00" + "\x14\x13\x12\x11"; string(b[:]) != want {
		t.Errorf("a source is\n%x, want\n%x", b, want)
	}
	if s, bad := ParseSource(b[:], 0x0A0B); bad != nil || s != in {
		t.Errorf("%+v became %+v, %v", in, s, bad)
	}
	for name, most := range map[string]int{"beyond the largest": 0x0A0A, "none accepted": 0, "negative": -1} {
		if _, bad := ParseSource(b[:], most); bad == nil || bad.Have != 0x0A0B {
			t.Errorf("%s: %v, want it refused for the length", name, bad)
		}
	}
	if _, bad := ParseSource(make([]byte, SourceSize), 1); bad == nil {
		t.Error("a large message of no bytes was accepted")
	}
}

func TestFramesAllocateNothing(t *testing.T) {
	b := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		var head [FrameSize]byte
		Frame{Kind: Data, Length: 48}.Encode(&head)
		copy(b, head[:])
		if _, err := ParseFrame(b, 64); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzFrame checks that an accepted frame is as Encode writes it, and that its payload lies in the
// message.
func FuzzFrame(f *testing.F) {
	var head [FrameSize]byte
	Frame{Kind: Data, Length: 4}.Encode(&head)
	f.Add(append(head[:], 1, 2, 3, 4), 20)
	for _, fr := range []Frame{{Kind: Credit, Credits: 1}, {Kind: Data, Number: 7}, {Kind: Data, Number: 7, Answer: true}, {Kind: Recall, Number: 3}, {Kind: Return, Number: 2}} {
		fr.Encode(&head)
		f.Add(bytes.Clone(head[:]), 16)
	}
	f.Fuzz(func(t *testing.T, b []byte, total int) {
		fr, bad := ParseFrame(b, total)
		if bad != nil {
			return
		}
		if FrameSize+int(fr.Length) != total || total > len(b) {
			t.Fatalf("%+v accepted for %d bytes in %d", fr, total, len(b))
		}
		var again [FrameSize]byte
		if fr.Encode(&again); !bytes.Equal(again[:], b[:FrameSize]) {
			t.Fatalf("%x was accepted, it is written as %x", b[:FrameSize], again)
		}
	})
}

// FuzzPrivateData checks hello and reject as FuzzFrame checks frames.
func FuzzPrivateData(f *testing.F) {
	f.Add(EncodeHello(Hello{Raw: true, Credits: 3, RecvSize: 4, User: []byte("user")}))
	f.Add(append(EncodeHello(Hello{}), 0, 0))
	f.Add(append(EncodeHello(Hello{Offered: 1 << 31}), 1, 2))
	f.Add(EncodeHello(Hello{Offered: 1, Required: 1}))
	f.Add(Reject{RejectMode, "both sides", []byte("data")}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, bad := ParseHello(b); bad == nil {
			again := EncodeHello(h)
			if h.Offered != 0 { // the details belong to features that this version does not know
				b = append(slices.Concat(b[:helloDetails], make([]byte, HelloSize-helloDetails), b[HelloSize:len(again)]), 0)
			}
			if !bytes.HasPrefix(b, again) || nonZero(b[len(again):]) >= 0 {
				t.Fatalf("%x was accepted, it is written as %x", b, again)
			}
		}
		if r, bad := ParseReject(b); bad == nil {
			again := r.Encode()
			if !bytes.HasPrefix(b, again) || nonZero(b[len(again):]) >= 0 {
				t.Fatalf("%x was accepted, it is written as %x", b, again)
			}
		}
	})
}
