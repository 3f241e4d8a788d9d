package actor

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// deviceEars logs device events.
type deviceEars struct{ owner }

func (d *deviceEars) Device(_ *Context[do], ev verbena.DeviceEvent) {
	d.log <- fmt.Sprint("device ", ev.Type, " ", ev.Port)
}

// Rule: device events come to the actors that watch the device, before the mailbox.
func TestDeviceEvents(t *testing.T) {
	a, _, _ := openPair(t, verbena.Options{})
	w := newWorld(t, Config{Runtime: a})
	d, deaf := &deviceEars{*newOwner()}, newOwner()
	r, other := spawn[do](w, Options{}, d), spawn[do](w, Options{}, deaf)
	hold, held := make(chan struct{}), make(chan struct{})
	w.must("telling", r.Tell(w.ctx, func(*Context[do]) { close(held); <-hold }))
	w.must("telling", r.Tell(w.ctx, func(*Context[do]) { d.log <- "message" }))
	wait(w, "the handler", held)
	w.tellDevice(verbena.DeviceEvent{Type: verbs.EventPortErr, Port: 1})
	close(hold)
	d.next(w, "device PORT_ERR 1")
	d.next(w, "message")
	r.Stop()
	other.Stop()
	wait(w, "the end", r.Done())
	wait(w, "the end", other.Done())
	w.tellDevice(verbena.DeviceEvent{Type: verbs.EventPortActive, Port: 1}) // no actor is left
}

// lateEars causes a device event in Stopped.
type lateEars struct{ deviceEars }

func (*lateEars) Stopped(ctx *Context[do], _ error) {
	ctx.System().tellDevice(verbena.DeviceEvent{Type: verbs.EventPortErr, Port: 1})
}

// Rule: an actor that has ended keeps no event that came while it ended.
func TestEventsWhileItEndsAreNotKept(t *testing.T) {
	w := newWorld(t, Config{})
	r := spawn[do](w, Options{}, &lateEars{deviceEars{*newOwner()}})
	r.Stop()
	wait(w, "the end", r.Done())
	if e := r.cell.system.pop(); e != nil {
		t.Errorf("%+v is kept", e.device)
	}
}

// Rule: a port's going down and up and a device's removal are reported, and the actor on a removed
// device still ends.
func TestPortAndDeviceEvents(t *testing.T) {
	prov := must.Get(soft.New(soft.Config{}))(t)
	rt := must.Get(verbena.Open(verbena.Config{Provider: prov, Device: "soft0"}))(t)
	w := newWorld(t, Config{Runtime: rt})
	d := &deviceEars{*newOwner()}
	r := spawn[do](w, Options{On: OnReactor}, d)
	begun := make(chan struct{})
	w.must("telling", r.Tell(w.ctx, func(*Context[do]) { close(begun) }))
	wait(w, "the handler", begun)
	w.must("port down", prov.SetPort("soft0", false))
	d.next(w, "device PORT_ERR 1")
	w.must("port up", prov.SetPort("soft0", true))
	d.next(w, "device PORT_ACTIVE 1")
	w.must("removing", prov.Remove("soft0"))
	d.next(w, "device DEVICE_FATAL 0")
	r.Stop()
	wait(w, "the end", r.Done())
	w.must("closing the system", w.Close(w.ctx))
	w.must("closing the runtime", rt.Close(w.ctx))
}
