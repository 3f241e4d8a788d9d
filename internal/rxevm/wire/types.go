package wire

// Spec is a command to be run in the machine.
type Spec struct {
	// Argv is the program and its arguments. A program without a slash is
	// looked up in the machine's PATH.
	Argv []string
	// Env is what is added to the machine's environment, KEY=value each.
	Env []string
	// Dir is the working folder, a path in the machine; "/" if empty.
	Dir string
	// Carry has the program copied into the machine's memory first, so that
	// it runs at memory's pace and may vanish from the host meanwhile.
	Carry bool
}

// Ended is how a command ended.
type Ended struct {
	// Code is the exit code; 128 and the signal's number after a signal.
	Code int
	// Signal is the name of the signal that ended it; empty without one.
	Signal string
	// Error is why it could not be started; empty if it could.
	Error string
}

// Greeting is what the agent says first.
type Greeting struct {
	Kernel string            // the release
	Env    map[string]string // what every command finds in its environment
}

// Share is a folder of the host in the machine.
type Share struct {
	Tag      string // the name of the 9p device
	Path     string // where it is mounted
	Writable bool
}

// Setup is what the agent finds in the initramfs: what the machine shall be.
type Setup struct {
	Modules []string // of the initramfs, in the order of loading
	Shares  []Share
	// CableIP is the address of the NIC on the virtual network, with its
	// prefix length; empty without one.
	CableIP string
}

// What the host and the agent both know of the machine.
const (
	// SetupFile is where the Setup is in the initramfs, as JSON.
	SetupFile = "/verbena.json"
	// Port is the name of the virtio-serial port of the link.
	Port = "verbena"
	// ShareDir is where the machine's own writable folder is mounted.
	ShareDir = "/verbena"
	// EndMark begins the line that the agent puts in the kernel's log when a
	// job has ended, before it says so: what the kernel had to say about the
	// job stands above it. The job's number follows.
	EndMark = "verbena: ended job "
	// SetupMark begins the line that says on the console why the machine
	// could not be set up.
	SetupMark = "verbena: setup: "
	// CableDevice is the RDMA device on the virtual network, CableNIC its
	// interface.
	CableDevice = "rxe2"
	CableNIC    = "n0"
)
