// Package open finds the provider and the device that a name stands for. It is the only package of the
// library that knows all providers: runtime and rdmacm open their devices with it.
package open
