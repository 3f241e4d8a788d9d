//go:build !linux || !cgo || portable

package reactor_test

// moreBeds is empty in this build. In a build for Linux with cgo and without the tag portable,
// moreBeds has the null device.
var moreBeds []bed

// moreRoomCases is empty, too: its cases use the null device.
var moreRoomCases map[string]roomCase
