package main

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// counterID is a counter of a device.
type counterID struct{ device, name string }

// counters reads the counters of the kernel devices among ends: hw_counters of the device and of
// each port, and counters of each port.
func (t tree) counters(ends [2]target) map[counterID]uint64 {
	found := map[counterID]uint64{}
	for _, e := range ends {
		root := t.path("sys/class/infiniband", e.device)
		var folders []string
		for _, pattern := range [...]string{"hw_counters", "ports/*/hw_counters", "ports/*/counters"} {
			some, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is well-formed
			folders = append(folders, some...)
		}
		for _, folder := range folders {
			files, _ := os.ReadDir(folder)
			for _, f := range files {
				text, err := os.ReadFile(filepath.Join(folder, f.Name()))
				if err != nil {
					continue
				}
				if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && f.Name() != "lifespan" {
					name, _ := filepath.Rel(root, filepath.Join(folder, f.Name()))
					found[counterID{e.device, name}] = n
				}
			}
		}
	}
	return found
}

// counted reads the counters again, and returns those that are not 0.
func (t tree) counted(ends [2]target, before map[counterID]uint64) Item[[]Counter] {
	after := t.counters(ends)
	if len(after) == 0 {
		return unknown[[]Counter]("/sys/class/infiniband has no counters of %s", ends[0].device)
	}
	rows := []Counter{}
	for id, n := range after {
		if n != 0 {
			rows = append(rows, Counter{Device: id.device, Name: id.name, Before: before[id], During: n - before[id]})
		}
	}
	slices.SortFunc(rows, func(a, b Counter) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Name, b.Name)) })
	return known(rows)
}

// asyncEvents are the asynchronous events that all contexts of the run have taken.
func (b *bench) asyncEvents() Item[[]AsyncEvent] {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := []AsyncEvent{}
	for _, t := range slices.Sorted(maps.Keys(b.events)) {
		rows = append(rows, AsyncEvent{Type: t.String(), N: b.events[t]})
	}
	return known(rows)
}
