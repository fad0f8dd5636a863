/* Declares what the files of the driver share. */
#ifndef ACME_H_
#define ACME_H_

#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/driver.h"

/* Creates an error for the host, which releases it. */
aa_status* acme_error(aa_code code, const char* message);

/* The extension "collectives" (communicator.c). */
extern const aa_collectives_table acme_collectives;

#endif /* ACME_H_ */
