package wire

// Spec is a command to be run in the machine.
type Spec struct {
	// Argv is the program and its arguments. A program without a slash is
	// looked up in the machine's PATH.
	Argv []string
	// Env is added to the machine's environment, KEY=value each.
	Env []string
	// Dir is the working folder, a path in the machine; "/" if empty.
	Dir string
	// Carry copies the program into the machine's memory first, so that it runs at memory speed
	// and may be removed from the host meanwhile.
	Carry bool
}

// Ended is the outcome of a command.
type Ended struct {
	// Code is the exit code; 128 and the signal's number after a signal.
	Code int
	// Signal is the name of the signal that ended it; empty without one.
	Signal string
	// Error is the reason why it could not be started; empty if it could.
	Error string
}

// Greeting is the agent's first message.
type Greeting struct {
	Kernel string            // the release
	Env    map[string]string // the environment of all commands
}

// Share is a folder of the host in the machine.
type Share struct {
	Tag      string // the name of the 9p device
	Path     string // its mount point
	Writable bool
}

// Setup is the machine's configuration, which the agent reads from the initramfs.
type Setup struct {
	Modules []string // of the initramfs, in the order of loading
	Shares  []Share
	// CableIP is the address of the NIC on the virtual network, with its
	// prefix length; empty without one.
	CableIP string
	NVDIMM  bool // the machine has persistent memory
}

// Names shared by the host and the agent.
const (
	// SetupFile is the path of the Setup in the initramfs, as JSON.
	SetupFile = "/verbena.json"
	// Port is the name of the virtio-serial port of the link.
	Port = "verbena"
	// ShareDir is the mount point of the machine's own writable folder.
	ShareDir = "/verbena"
	// EndMark begins the line that the agent writes to the kernel's log when a job has ended,
	// before it sends Exit: the kernel's messages about the job precede it. The job's number
	// follows.
	EndMark = "verbena: ended job "
	// SetupMark begins the console line with the reason why the machine could not be set up.
	SetupMark = "verbena: setup: "
	// CableDevice is the RDMA device on the virtual network, CableNIC its
	// interface.
	CableDevice = "rxe2"
	CableNIC    = "n0"
)
