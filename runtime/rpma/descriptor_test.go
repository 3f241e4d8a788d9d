package rpma

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: the descriptors are those of librpma 1.3 on a little-endian machine, byte for byte.
func TestDescriptorsAreLibrpmas(t *testing.T) {
	d := descriptor{addr: 0x0123456789abcdef, size: 0x1122334455667788, rkey: 0xa1b2c3d4, usage: ReadSrc | WriteDst | FlushPersistent}
	desc := d.encode()
	if got, want := hex.EncodeToString(desc[:]), "efcdab8967452301"+"8877665544332211"+"d4c3b2a1"+"29"; got != want {
		t.Errorf("the descriptor is %s, want %s", got, want)
	}
	for i, u := range []Usage{ReadSrc, ReadDst, WriteSrc, WriteDst, FlushVisibility, FlushPersistent, SendBuf, RecvBuf} {
		if u != 1<<i {
			t.Errorf("%v is %d, want %d as RPMA_MR_USAGE_%v", u, u, 1<<i, u)
		}
	}
	for _, direct := range []bool{false, true} {
		desc := PeerConfig{DirectWriteToPMem: direct}.Descriptor()
		if want := map[bool]byte{true: 1}[direct]; desc[0] != want || len(desc) != 1 {
			t.Errorf("the descriptor of direct write %t is %v, want [%d]", direct, desc, want)
		}
	}
}

// Rule: what a descriptor says is what was described, wherever it lies in memory and whatever follows it.
func TestDescriptorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := descriptor{addr: rapid.Uint64().Draw(t, "addr"), rkey: rapid.Uint32().Draw(t, "rkey"), usage: Usage(rapid.Uint8Range(1, 255).Draw(t, "usage"))}
		d.size = rapid.Uint64Range(0, -d.addr-1).Draw(t, "size")
		b := d.encode()
		shift := rapid.IntRange(0, 7).Draw(t, "alignment")
		room := append(make([]byte, shift), append(b[:], rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "behind")...)...)
		m := must.Get(ParseRemoteMR(room[shift:]))(t)
		if m.d != d || m.Size() != d.size || m.FlushTypes() != d.usage&(FlushVisibility|FlushPersistent) {
			t.Fatalf("the descriptor of %+v was read as %+v", d, m.d)
		}
		cfg := PeerConfig{rapid.Bool().Draw(t, "direct")}
		c := cfg.Descriptor()
		if got := must.Get(ParsePeerConfig(append(c[:], 7)))(t); got != cfg {
			t.Fatalf("the descriptor of %+v was read as %+v", cfg, got)
		}
	})
}

// Rule: descriptors that are too short are ErrInvalid, and so are memory without a use and memory beyond
// the address space.
func TestDescriptorMistakes(t *testing.T) {
	whole := descriptor{addr: 4096, size: 64, rkey: 1, usage: ReadSrc}.encode()
	for n := range MRSize {
		_, err := ParseRemoteMR(whole[:n])
		isCode(t, "a short descriptor of memory", err, ErrInvalid)
	}
	for _, d := range []descriptor{{addr: 4096, size: 64}, {addr: ^uint64(0), size: 2, usage: ReadSrc}, {addr: 2, size: ^uint64(0), usage: ReadSrc}} {
		b := d.encode()
		m, err := ParseRemoteMR(b[:])
		if isCode(t, "a wrong descriptor", err, ErrInvalid); m != nil {
			t.Errorf("the wrong descriptor %+v was read as %+v", d, m)
		}
	}
	_, err := ParsePeerConfig(nil)
	isCode(t, "a short descriptor of a peer configuration", err, ErrInvalid)
	if c := must.Get(ParsePeerConfig([]byte{0x80}))(t); !c.DirectWriteToPMem {
		t.Error("a byte that is not 0 declares no direct write; in C it does")
	}
}

// FuzzDescriptors has the parsers read anything. What they accept they write again.
func FuzzDescriptors(f *testing.F) {
	whole := descriptor{addr: 4096, size: 64, rkey: 1, usage: ReadSrc}.encode()
	f.Add(whole[:])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseRemoteMR(b)
		if err == nil {
			if again := m.d.encode(); !bytes.Equal(again[:], b[:MRSize]) {
				t.Errorf("%x was read and written as %x", b[:MRSize], again)
			}
			for _, off := range []int{0, 1, int(m.Size() / 2), int(m.Size()) - 8, int(m.Size())} {
				if at, err := m.at(off, 8); err == nil && (at.Addr-m.d.addr > m.d.size || at.Addr+7 < at.Addr) {
					t.Errorf("8 bytes at %d of %v are at 0x%x", off, m, at.Addr)
				}
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Errorf("the error is %v, want ErrInvalid", err)
		}
		if c, err := ParsePeerConfig(b); (err == nil) != (len(b) > 0) || c.DirectWriteToPMem != (len(b) > 0 && b[0] != 0) {
			t.Errorf("%x was read as %+v, %v", b, c, err)
		}
	})
}
