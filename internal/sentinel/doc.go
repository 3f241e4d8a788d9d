// Package sentinel makes the sentinels of all rooms: values for errors.Is that also match
// others, the standard library's among them, and that say whether trying again may help.
package sentinel
