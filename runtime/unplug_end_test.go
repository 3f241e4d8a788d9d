package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: what is out when the device goes says so, also on a connection that is
// being closed, or has just failed for another reason; closing is no error.
func TestRemovalMeetsAnEndUnderWay(t *testing.T) {
	for name, begin := range map[string]func(c *Conn){
		"closing": func(c *Conn) { c.end(false) },
		"failing": func(c *Conn) { c.fail(errors.New("boom")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlugRig(t, Config{NoCallerDriving: true})
			ctx := testContext(t)
			c, _ := r.connect(r.a, r.b, Options{Raw: true})
			f, err := c.SendBytes(ctx, []byte("posted"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.sh.r.Do(ctx, c.sh.r.Flush); err != nil {
				t.Fatal(err)
			}
			var rerr error
			if err := c.sh.r.Do(ctx, func() {
				if name == "closing" {
					begin(c)
					return
				}
				rerr = r.p.Remove("a") // before anybody here is told
				begin(c)
			}); err != nil {
				t.Fatal(err)
			}
			if name == "closing" {
				rerr = errors.Join(c.sh.r.Do(ctx, func() {}), r.p.Remove("a")) // it waits for the send
			}
			if rerr != nil {
				t.Fatal(rerr)
			}
			_, err = f.Await(ctx)
			lost(t, "the send", err)
			if err := c.Close(ctx); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
	}
}

// Rule: a device that goes while shared receives or datagrams are being closed is
// what their operations end with, and at once: no flush comes to be waited for.
func TestRemovalMeetsAClose(t *testing.T) {
	r := newPlugRig(t, Config{NoCallerDriving: true})
	ctx := testContext(t)
	s, err := r.a.NewSharedRecv(4, 1)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := s.PostRecv(bufferOf(t, r.a, make([]byte, 64)).Slice())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.a.ListenPacket(":0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	if err := p.sh.r.Do(ctx, func() {
		p.setCause(ErrConnClosed)
		errs = append(errs, r.p.Remove("a")) // before anybody here is told
		p.end()
		if p.destroyed {
			t.Error("this test wants the datagrams to wait for a flush")
		}
		p.fail(verbs.ErrDeviceRemoved)
		if !p.destroyed {
			t.Error("the datagrams wait for the flush of a device that is gone")
		}
		errs = append(errs, s.end()) // Close, before it is unplugged
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(append(errs, p.Close(ctx))...); err != nil {
		t.Fatal(err)
	}
	_, err = taken.Await(ctx)
	lost(t, "the shared receive", err)
}
