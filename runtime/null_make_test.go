//go:build linux && cgo && !portable

package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// toItself connects a runtime on the null device to itself, at an address that it need not find: iWARP has none.
func toItself(t *testing.T, cfg Config) (a, b *Conn) {
	t.Helper()
	rt := nullBed.open(t, cfg, 1)
	ln := must.Get(rt.Listen("127.0.0.2:0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	a = must.Get(rt.Dial(testContext(t), ln.Addr().String()))(t)
	return a, must.Get(seat.Await(testContext(t)))(t)
}

// sizes are the profiles that grant other sizes of requests than the null device, and what they grant.
var sizes = map[string]struct{ inline, pieces int }{
	"mlx5":    {DefaultInline, DefaultMaxSGE},
	"irdma":   {101, DefaultMaxSGE},
	"iwarp":   {48, 2},
	"bnxt_re": {96, DefaultMaxSGE},
	"erdma":   {96, DefaultMaxSGE},
	"hns":     {32, DefaultMaxSGE},
	"siw":     {80, DefaultMaxSGE},
}

// Rule: Dial, Listen and messages of all sizes work with the default options, whatever the device grants inline and
// in elements.
func TestDefaultsFitEachDevice(t *testing.T) {
	for name, want := range sizes {
		t.Run(name, func(t *testing.T) {
			profile(t, name)
			a, b := toItself(t, Config{})
			if a.inline != want.inline {
				t.Errorf("the connection sends %d bytes inline, want %d", a.inline, want.inline)
			}
			ctx := testContext(t)
			arrives := func(sent []byte, f Future, err error) {
				t.Helper()
				must.Do(t, err)
				m := must.Get(b.RecvWait(ctx))(t)
				if !bytes.Equal(m.Data, sent) {
					t.Errorf("a message of %d bytes arrived as one of %d, or as other bytes", len(sent), len(m.Data))
				}
				must.Do(t, m.Release())
				must.Get(f.Await(ctx))(t)
			}
			for _, n := range []int{0, 1, 17, 33, 81, DefaultInline, 5000} {
				data := bytes.Repeat([]byte{byte(n)}, n)
				f, err := a.SendBytes(ctx, data)
				arrives(data, f, err)
			}
			buf := must.Get(a.rt.Alloc(1000))(t)
			copy(buf.Bytes(), bytes.Repeat([]byte("verbena"), 200))
			var pieces []Slice
			var sent []byte
			for i := range want.pieces {
				pieces = append(pieces, must.Get(buf.Slice().Sub(100*i, 50))(t))
				sent = append(sent, buf.Bytes()[100*i:100*i+50]...)
			}
			op := SendVOp(pieces)
			f, err := a.Start(ctx, &op)
			arrives(sent, f, err)
			must.Do(t, buf.Release())
		})
	}
}

// Rule: an option beyond the device's limit fails. The error has the value of the option and the limit; a
// connection with the limit succeeds.
func TestOptionsBeyondTheDeviceSayTheLimit(t *testing.T) {
	for _, c := range []struct {
		profile string
		o       Options
		want    string
		lower   Options
	}{
		{"irdma", Options{Inline: 102}, "Inline is 102, want at most 101", Options{Inline: 101}},
		{"iwarp", Options{MaxSGE: 3}, "MaxSGE is 3, want at most 2", Options{MaxSGE: 2}},
		{"iwarp", Options{Inline: 128}, "Inline is 128, want at most 48", Options{Inline: 48}},
		{"bnxt_re", Options{Inline: 128}, "Inline is 128, want at most 96", Options{Inline: 96}},
		{"bnxt_re", Options{MaxSGE: 6}, "MaxSGE is 6, want at most 5", Options{MaxSGE: 5}},
		{"hns", Options{Inline: 64}, "Inline is 64, want at most 32", Options{Inline: 32}},
		{"erdma", Options{Raw: true, MaxSGE: 2}, "RecvSGE is 2, want at most 1", Options{Raw: true, MaxSGE: 1}},
		{"irdma", Options{SendDepth: 16384}, "SendDepth is 16384, want at most 81", Options{SendDepth: 8000}}, // by quanta: 8,127 requests
	} {
		t.Run(c.profile, func(t *testing.T) {
			profile(t, c.profile)
			rt := nullBed.open(t, Config{}, 0)
			_, err := rt.DialOptions(testContext(t), "127.0.0.2:9", c.o)
			if !errors.Is(err, ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("Dial returned %v, want ErrConfig and %q", err, c.want)
			}
			toItself(t, Config{Conn: c.lower})
		})
	}
}

// Rule: a device whose depth depends on the size of a request says how many there can be, although max_qp_wr says more;
// that many are granted.
func TestDepthBeyondTheDeviceSaysTheLimit(t *testing.T) {
	profile(t, "mlx5")
	rt := nullBed.open(t, Config{}, 0)
	if most := rt.DeviceAttr().MaxQPWR; most != 32768 {
		t.Fatalf("the device says %d requests, want 32768", most)
	}
	_, err := rt.DialOptions(testContext(t), "127.0.0.2:9", Options{SendDepth: maxSends})
	found := regexp.MustCompile(`SendDepth is 32768, want at most (\d+),`).FindStringSubmatch(fmt.Sprint(err))
	if !errors.Is(err, ErrConfig) || found == nil {
		t.Fatalf("Dial returned %v, want ErrConfig and the largest SendDepth", err)
	}
	most := must.Get(strconv.Atoi(found[1]))(t)
	t.Logf("the largest SendDepth is %d", most)
	toItself(t, Config{Conn: Options{SendDepth: most}})
	if _, err = rt.DialOptions(testContext(t), "127.0.0.2:9", Options{SendDepth: most + 1}); !errors.Is(err, ErrConfig) {
		t.Errorf("Dial with a SendDepth of one more returned %v, want ErrConfig", err)
	}
}

// Rule: a device without reliable connections is refused by Open, which says what it has.
func TestOpenRefusesADeviceWithoutRC(t *testing.T) {
	profile(t, "efa")
	_, err := Open(Config{Provider: nullProvider(t), Device: "null0"})
	if !errors.Is(err, verbs.ErrNotSupported) || !strings.Contains(fmt.Sprint(err), "RC") || !strings.Contains(fmt.Sprint(err), "[UD]") {
		t.Errorf("Open returned %v, want ErrNotSupported, and that the device has UD and not RC", err)
	}
}
