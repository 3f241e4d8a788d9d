package overhead

const guestArg = "guest"

func guestWorker([]string) int { return 2 }
