// Package altered is for tests: devices that report attributes other than their own.
package altered
