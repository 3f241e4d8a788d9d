package runtime

import "time"

// remove takes a node's device out under everything. Its connections fail, with
// what was under way; its peers see silence. When all is closed a new device comes
// in its place.
func (w *simWorld) remove(n *simNode) {
	if !n.up() || n.portAt != 0 {
		return
	}
	w.events[eventRemove]++
	if err := w.prov.Remove(n.name); err != nil {
		w.fail("removing the device of %s: %v", n.name, err)
	}
	n.removed, n.stopping = true, true
	for _, p := range w.pairs {
		for i, e := range p.ends {
			if p.nodes[i] == n {
				p.excuse("a device was removed")
				if e != nil {
					e.cutOff = true
				}
			}
		}
	}
}

// unplug takes a node's port down for a while: nothing fails by itself, but
// retries may be used up.
func (w *simWorld) unplug(n *simNode, d time.Duration) {
	if !n.up() || n.portAt != 0 {
		return
	}
	w.events[eventPortDown]++
	if err := w.prov.SetPort(n.name, false); err != nil {
		w.fail("taking the port of %s down: %v", n.name, err)
	}
	n.portAt = w.now() + d
	for _, p := range w.pairs {
		if p.nodes[0] == n || p.nodes[1] == n {
			p.excuse("a port was down")
		}
	}
}

// plug brings the port up again.
func (n *simNode) plug() {
	n.portAt = 0
	if err := n.w.prov.SetPort(n.name, true); err != nil {
		n.w.fail("bringing the port of %s up: %v", n.name, err)
	}
}
