package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// confirm asks a person, unless yes says that nobody needs to be asked. Any answer but yes is an error that says what was
// declined; so is that there is nobody to ask, with what else can be done.
func (a *app) confirm(yes bool, question, instead, declined string) error {
	switch {
	case yes:
		return nil
	case !a.asks:
		return wrongUsage("there is nobody to ask: give --yes to %s; %s", question, instead)
	}
	fmt.Fprint(a.err, question+"? [y/N] ")
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return errors.New(declined)
	}
}
