package runtime

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// drawRemote returns a random descriptor whose range does not wrap around.
func drawRemote(t *rapid.T) Remote {
	r := Remote{
		Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint64Max(math.MaxInt64).Draw(t, "length"),
		RKey: rapid.Uint32().Draw(t, "rkey"), Access: verbs.AccessFlags(rapid.Uint32().Draw(t, "access")) & knownAccess,
	}
	if r.Addr+r.Length < r.Addr {
		r.Length = math.MaxUint64 - r.Addr
	}
	return r
}

// Rule: if a Remote is encoded as bytes, as text or as JSON, decoding the result returns the same
// Remote.
func TestRemoteSurvivesItsForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRemote(t)
		b, err := r.MarshalBinary()
		if err != nil || len(b) != RemoteSize {
			t.Fatalf("MarshalBinary returned %d bytes, error %v; want %d bytes", len(b), err, RemoteSize)
		}
		var back, fromText, fromJSON Remote
		if err := back.UnmarshalBinary(b); err != nil || back != r {
			t.Fatalf("the bytes of %+v were decoded as %+v, error %v; want the same Remote", r, back, err)
		}
		text, err := r.MarshalText()
		if err != nil || strings.ContainsAny(string(text), " \t\n/+=%\"") {
			t.Fatalf("MarshalText returned %q, error %v; want a text without spaces, slashes, +, =, %% and quotes", text, err)
		}
		if err := fromText.UnmarshalText(text); err != nil || fromText != r {
			t.Fatalf("the text of %+v was decoded as %+v, error %v; want the same Remote", r, fromText, err)
		}
		j := must.Get(json.Marshal(r))(t)
		if err := json.Unmarshal(j, &fromJSON); err != nil || fromJSON != r {
			t.Fatalf("the JSON of %+v was decoded as %+v, error %v; want the same Remote", r, fromJSON, err)
		}
	})
}

// Rule: version 1 of the binary form has a fixed layout.
func TestRemoteLayoutIsFixed(t *testing.T) {
	r := Remote{Addr: 0x1122334455667788, Length: 0x99, RKey: 0xAABBCCDD, Access: verbs.AccessRemoteRead}
	b := must.Get(r.AppendBinary([]byte("before")))(t)
	want := "before" + "VRBM\x01\x00\x28\x00" + "\x04\x00\x00\x00" + "\xDD\xCC\xBB\xAA" +
		"\x88\x77\x66\x55\x44\x33\x22\x11" + "\x99\x00\x00\x00\x00\x00\x00\x00"
	want += string(binary.LittleEndian.AppendUint64(nil, xxhash.Sum64String(want[6:])))
	if string(b) != want {
		t.Errorf("AppendBinary returned\n%x, want\n%x", b, want)
	}
}

// reseal replaces the checksum of b with the correct one.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[remoteHashed:], xxhash.Sum64(b[:remoteHashed]))
	return b
}

// Rule: if bytes or a text are no valid descriptor, decoding fails with a *DescriptorError that has the
// reason. A failed UnmarshalBinary does not change its receiver.
func TestHostileDescriptorsAreRefusedWithTheReason(t *testing.T) {
	good := must.Get(Remote{Addr: 0x1000, Length: 0x2000, RKey: 7, Access: verbs.AccessRemoteRead}.MarshalBinary())(t)
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	at := func(i int, v byte) []byte { return change(func(b []byte) []byte { b[i] = v; return reseal(b) }) }
	for _, c := range []struct {
		name   string
		b      []byte
		reason DescriptorReason
		text   string
	}{
		{"empty", nil, DescriptorTruncated, "0 bytes, want 40"},
		{"one byte too short", good[:39], DescriptorTruncated, "39 bytes, want 40"},
		{"one byte too long", append(bytes.Clone(good), 0), DescriptorTrailing, "41 bytes, want 40"},
		{"wrong magic number", at(0, 'X'), DescriptorMagic, "begins with"},
		{"version 2", at(4, 2), DescriptorVersion, "version 2"},
		{"version 3 with three more bytes", append(at(4, 3), 1, 2, 3), DescriptorVersion, "version 3"},
		{"a reserved byte that is not zero", at(5, 1), DescriptorField, "0x002801"},
		{"size field 41", at(6, 41), DescriptorField, "0x002900"},
		{"unknown access flag", at(11, 0x80), DescriptorAccess, "0x80000000"},
		{"a range that wraps around", change(func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[24:], math.MaxUint64-0xFFF)
			return reseal(b)
		}), DescriptorOverflow, "0x1000"},
		{"a length that is no int64", change(func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[16:], 0)
			binary.LittleEndian.PutUint64(b[24:], 1<<63)
			return reseal(b)
		}), DescriptorOverflow, "9223372036854775808 bytes"},
		{"a flipped bit", change(func(b []byte) []byte { b[20] ^= 1; return b }), DescriptorChecksum, "checksum"},
	} {
		r := Remote{Addr: 5}
		err := r.UnmarshalBinary(c.b)
		e, ok := errors.AsType[*DescriptorError](err)
		if !ok || e.Reason != c.reason || !errors.Is(err, ErrDescriptor) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: UnmarshalBinary returned %v, want a *DescriptorError with reason %d and the text %q", c.name, err, c.reason, c.text)
		}
		if r != (Remote{Addr: 5}) {
			t.Errorf("%s: the failed UnmarshalBinary changed its receiver to %+v, want no change", c.name, r)
		}
	}
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			if new(Remote).UnmarshalBinary(b) == nil {
				t.Fatalf("UnmarshalBinary succeeded with bit %d of byte %d flipped, want an error", bit, i)
			}
		}
	}
	text, _ := Remote{Length: 1}.MarshalText()
	for _, s := range []string{"", "vrbm:", string(text[1:]), string(text) + "A", "VRBM:" + string(text[5:]),
		string(text[:10]) + "\n" + string(text[11:]), string(text[:10]) + "\r\n" + string(text[12:]), string(text[:10]) + "=" + string(text[11:])} {
		if err := new(Remote).UnmarshalText([]byte(s)); !errors.Is(err, &DescriptorError{Reason: DescriptorText}) {
			t.Errorf("UnmarshalText of %q returned %v, want a *DescriptorError with reason DescriptorText", s, err)
		}
	}
	for _, r := range []Remote{{Addr: 2, Length: math.MaxUint64}, {Access: 1 << 31}} {
		if _, err := r.MarshalBinary(); !errors.Is(err, ErrDescriptor) {
			t.Errorf("MarshalBinary of the invalid %v returned %v, want ErrDescriptor", r, err)
		}
		if _, err := r.MarshalText(); !errors.Is(err, ErrDescriptor) {
			t.Errorf("MarshalText of the invalid %v returned %v, want ErrDescriptor", r, err)
		}
	}
}

// Rule: if off + n is at most the length of the Remote, At(off, n) returns the n bytes from off on.
// Otherwise At returns ErrRange and ErrRemoteRange.
func TestRemoteAtIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRemote(t)
		num := func(name string) uint64 {
			return rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 10), rapid.Just(r.Length), rapid.Just(uint64(math.MaxUint64))).Draw(t, name)
		}
		off, n := num("off"), num("n")
		sub, err := r.At(off, n)
		sum := new(big.Int).Add(new(big.Int).SetUint64(off), new(big.Int).SetUint64(n))
		if inside := sum.Cmp(new(big.Int).SetUint64(r.Length)) <= 0; inside != (err == nil) {
			t.Fatalf("At(%d, %d) of %d bytes returned the error %v, want an error: %v", off, n, r.Length, err, !inside)
		}
		if err != nil {
			if !errors.Is(err, ErrRange) || !errors.Is(err, ErrRemoteRange) || !strings.Contains(err.Error(), fmt.Sprint(off)) {
				t.Fatalf("At(%d, %d) of %d bytes returned %v, want ErrRange and ErrRemoteRange with the offset in the text", off, n, r.Length, err)
			}
			return
		}
		if want := (Remote{r.Addr + off, n, r.RKey, r.Access}); sub != want {
			t.Fatalf("At(%d, %d) returned %+v, want %+v", off, n, sub, want)
		}
	})
}

// Rule: the printed form of a Remote does not contain the RKey.
func TestRemoteIsPrintedWithoutItsKey(t *testing.T) {
	r := Remote{Addr: 0x10, Length: 5, RKey: 0xDEADBEEF, Access: verbs.AccessRemoteRead}
	for _, s := range []string{r.String(), fmt.Sprintf("%v %+v %s", r, r, r)} {
		if strings.Contains(strings.ToLower(s), "deadbeef") || strings.Contains(s, fmt.Sprint(r.RKey)) {
			t.Errorf("the printed form %q contains the RKey 0x%x, want no key", s, r.RKey)
		}
	}
}

// Rule: AppendBinary, into a slice with room, and UnmarshalBinary allocate nothing.
func TestRemoteDecodesWithoutAllocating(t *testing.T) {
	r := Remote{Addr: 1, Length: 2}
	b, _ := r.MarshalBinary()
	if n := testing.AllocsPerRun(100, func() {
		var err error
		if b, err = r.AppendBinary(b[:0]); err != nil || r.UnmarshalBinary(b) != nil {
			t.Fatalf("AppendBinary returned the error %v, and if it is nil, UnmarshalBinary of the result failed; want no error of either", err)
		}
	}); n != 0 {
		t.Errorf("AppendBinary and UnmarshalBinary made %v allocations, want 0", n)
	}
}

// FuzzRemote decodes arbitrary bytes. If decoding succeeds, encoding the Remote must return the same
// bytes, and the range of the Remote must not wrap around. Otherwise the error must be ErrDescriptor.
func FuzzRemote(f *testing.F) {
	good, _ := Remote{Addr: 0x1000, Length: 0x2000, RKey: 7, Access: verbs.AccessRemoteRead}.MarshalBinary()
	f.Add(good, false)
	f.Add(good, true)
	f.Add(good[:20], false)
	text, _ := Remote{Length: 9}.MarshalText()
	f.Add(text, false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) == RemoteSize {
			b = reseal(bytes.Clone(b)) // without the correct checksum, nearly no input reaches the other checks
		}
		var r Remote
		if err := r.UnmarshalBinary(b); err == nil {
			if again, err := r.MarshalBinary(); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%x was decoded as %+v, which was encoded as %x, error %v; want the same bytes", b, r, again, err)
			}
			if r.Addr+r.Length < r.Addr {
				t.Fatalf("%x was decoded as %+v, whose range wraps around; want an error", b, r)
			}
		} else if !errors.Is(err, ErrDescriptor) {
			t.Fatalf("UnmarshalBinary returned a %T, want a *DescriptorError", err)
		} else if r != (Remote{}) {
			t.Fatalf("the failed UnmarshalBinary changed its receiver to %+v, want no change", r)
		}
		if err := r.UnmarshalText(b); err == nil {
			if again, err := r.MarshalText(); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%q was decoded as %+v, which was encoded as %q, error %v; want the same text", b, r, again, err)
			}
		} else if !errors.Is(err, ErrDescriptor) {
			t.Fatalf("UnmarshalText returned a %T, want a *DescriptorError", err)
		}
	})
}
