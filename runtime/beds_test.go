package runtime

import "testing"

// bed is a provider with two devices that reach each other, that tests run on.
type bed struct {
	name string
	open func(t testing.TB, cfg Config, dev int) *Runtime
}

// mainBed is the places; a Provider of the configuration's own has the devices of
// the software RNIC's names.
var mainBed = bed{"main", func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider != nil {
		cfg.Device = [...]string{"soft0", "soft1"}[dev]
	} else {
		cfg.Device = [...]place{first, second}[dev].name
	}
	return mustOpen(t, cfg)
}}

// onBeds runs a test on every provider there is.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	for _, b := range beds {
		if onDevice && b.name != mainBed.name {
			continue // it has its own run
		}
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// connected is connected on the places.
func connected(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	return mainBed.connected(t, cfg)
}

// connected is two runtimes on the bed's two devices with one connection.
func (d bed) connected(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	if a, err = client.Dial(ctx, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = seat.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return a, b
}
