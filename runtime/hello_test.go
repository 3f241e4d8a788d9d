package runtime

import (
	"bytes"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// met is a dialer and who accepted it, or why they did not meet.
func met(t *testing.T, b bed, dial, listen Options) (d, l *Conn, err error) {
	t.Helper()
	server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
	ln, err := server.ListenOptions(":0", listen)
	if err != nil {
		t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	if d, err = client.DialOptions(ctx, ln.Addr().String(), dial); err != nil {
		seat.Discard()
		return nil, nil, err
	}
	if l, err = seat.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return d, l, nil
}

// Rule: the peer of a raw connection need not be a runtime: it may say nothing, or
// something else, in its private data, whoever dials. What it says comes whole.
func TestRawPeerThatIsNoRuntime(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		for name, said := range map[string][]byte{"nothing": nil, "something": []byte("NVMe says this"), "all that fits": bytes.Repeat([]byte{7}, verbs.MaxPrivateConnect)} {
			t.Run(name, func(t *testing.T) {
				raw, bare := Options{Raw: true}, Options{Raw: true, Bare: true, PrivateData: said}
				for _, c := range []struct{ dial, listen Options }{{bare, raw}, {raw, bare}} {
					d, l, err := met(t, b, c.dial, c.listen)
					if err != nil {
						t.Fatal(err)
					}
					runtime, heard := d, d.PrivateData()
					if c.dial.Bare {
						runtime, heard = l, l.PrivateData()
					}
					if len(heard) < len(said) || !bytes.Equal(heard[:len(said)], said) || len(bytes.Trim(heard[len(said):], "\x00")) > 0 || said == nil && heard != nil {
						t.Errorf("heard %q, want %q and zeros", heard, said)
					}
					if !runtime.Raw() {
						t.Error("the connection is not raw")
					}
					say(t, d, l, "a message")
					say(t, l, d, "an answer")
				}
			})
		}
	})
}

// say sends a message over a raw connection.
func say(t *testing.T, from, to *Conn, what string) {
	t.Helper()
	buf, err := to.rt.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	got, err := to.PostRecv(buf.Slice())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.sh.r.Do(testContext(t), to.sh.r.Flush); err != nil { // on UC it would be lost, otherwise
		t.Fatal(err)
	}
	sent, err := from.SendBytes(testContext(t), []byte(what))
	done(t, sent, err)
	if r := done(t, got, nil); string(buf.Bytes()[:r.Bytes]) != what {
		t.Errorf("received %q, want %q", buf.Bytes()[:r.Bytes], what)
	}
}

// Rule: a managed connection needs the peer's hello and says so, whoever dials; a
// hello that is one is understood, or the mode that differs is not noticed.
func TestManagedPeerThatIsNoRuntime(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		bare, managed := Options{Raw: true, Bare: true}, Options{}
		_, _, err := met(t, b, bare, managed)
		rejected(t, err, proto.RejectProtocol)
		if _, _, err = met(t, b, managed, bare); !errors.Is(err, ErrPeerProtocol) {
			t.Errorf("dialing a peer without a hello: %v, want ErrPeerProtocol", err)
		}
		_, _, err = met(t, b, managed, Options{Raw: true})
		rejected(t, err, proto.RejectMode)
	})
}

func rejected(t *testing.T, err error, code uint16) {
	t.Helper()
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Code != code {
		t.Errorf("dialing: %v, want a rejection with code %d", err, code)
	}
}

// Rule: a raw connection takes no hello that is broken for none: its sender means
// something that we do not know.
func TestBrokenHelloOfARawPeer(t *testing.T) {
	h := proto.EncodeHello(proto.Hello{Raw: true})
	h[4]++
	_, err := readHello(h, Options{Raw: true})
	e, ok := errors.AsType[*ProtocolError](err)
	if !ok || *e != (ProtocolError{"hello", "version", 2, 1}) || !errors.Is(err, ErrPeerProtocol) || !errors.Is(err, ErrProtocol) {
		t.Errorf("a hello of another version: %v, want a ProtocolError that says so", err)
	}
	if got, err := readHello(h, Options{Raw: true, Bare: true}); err != nil || !bytes.Equal(got.User, h) {
		t.Errorf("the same for a bare connection: %q, %v; want it as it is", got.User, err)
	}
}

// Rule: bare private data has the room that the hello takes otherwise, and no
// more; and only raw connections have such data.
func TestBarePrivateDataIsBounded(t *testing.T) {
	rt := mustOpen(t, Config{})
	_, err := rt.DialOptions(testContext(t), "127.0.0.2:1", Options{Raw: true, Bare: true, PrivateData: make([]byte, verbs.MaxPrivateConnect+1)})
	mistake(t, "dialing with too much", err, ErrConfig, "57", "56")
	_, err = rt.ListenOptions(":0", Options{Raw: true, Bare: true, PrivateData: make([]byte, verbs.MaxPrivateAccept+1)})
	mistake(t, "listening with too much", err, ErrConfig, "197", "196")
	if MaxDialData != 24 || MaxAcceptData != 164 {
		t.Errorf("room for %d and %d bytes of user data, want 24 and 164", MaxDialData, MaxAcceptData)
	}
	_, err = rt.ListenOptions(":0", Options{Bare: true})
	mistake(t, "a bare managed connection", err, ErrConfig, "Bare")
}
