package wire

import "fmt"

// Format is the version of what lapse stores in JetStream beside messages: checkpoints, leases,
// members. Where it is absent it is 1.
const Format = 1

// CheckFormat returns an error unless this version of lapse knows a Format; 0 is absent.
func CheckFormat(what string, format int) error {
	if format <= Format {
		return nil
	}
	return UnknownFormat(what, fmt.Sprint(format), fmt.Sprint(Format))
}

// UnknownFormat is the error that something stored has another format than this version of lapse
// knows. It says how to go on.
func UnknownFormat(what, format, known string) error {
	return fmt.Errorf("%s has the format %s, and this version of lapse knows %s: go on with the version that has written it, or copy its documents (lapse export there, import here)",
		what, Quote(format), known)
}
