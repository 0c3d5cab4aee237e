package setup

// InstallSteps is Catalog with the steps of another program.
var InstallSteps = install
