// Package browser tests the console in a real browser (Debian's chromium, without a window)
// against a real lapse, by clicking and typing as a person does. All tests share one lapse and
// one browser; each has a tab of its own.
//
// A test fails if its page logs an error, throws an exception, violates its content security
// policy, or requests anything from another host. axe-core looks at each page, light and dark,
// on a desktop and on a phone.
//
// LAPSE_SCREENSHOTS names a directory for pictures of each page:
//
//	LAPSE_SCREENSHOTS=screenshots go test ./integration/browser
package browser
